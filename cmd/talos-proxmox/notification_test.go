package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/operations"
	"talos-proxmox/internal/planguard"
	"talos-proxmox/internal/recovery"
	"talos-proxmox/internal/request"
)

// newTestNotifier returns the notifier of a deployment that changed a machine, and failed at another one.
func newTestNotifier(ctx context.Context) *notifier {
	cmd := &cobra.Command{Use: "deploy"}
	cmd.SetContext(ctx)

	return &notifier{cmd: cmd, webhook: "https://hooks.example.com/services/hunter2", done: notified{
		Stack: "prod", Operation: "deploy", See: "https://git.example.org/a/b/actions/runs/7",
		Started: time.Now().UTC().Truncate(time.Second).Add(-90 * time.Second), Error: []string{},
		Machines: []planguard.MachineChange{{Name: "w-1", Change: "restarted"}, {Name: "w-2", Change: "restarted", Failed: true}},
	}, errors: []planguard.Message{
		{Resource: "w-3-vm", Text: "before hook failed: w-3 is not changed, because the change of w-2 failed"},
		{Text: "update failed"},
		{Resource: "w-2-vm", Text: "1 error occurred:\n  * updating urn:pulumi:prod::w-2-vm: 1 error occurred:\n  * 401: token a-secret-token\n\n"},
	}}
}

// TestNotifiedErrors: the cause comes first, without secrets; a success has none.
func TestNotifiedErrors(t *testing.T) {
	t.Parallel()

	n := newTestNotifier(t.Context())
	n.finish(errors.New("pulumi up: exit status 255, see above\nhttps://hooks.example.com/services/hunter2 "+strings.Repeat("ä", 400)),
		[]string{"a-secret-token"})
	require.Len(t, n.done.Error, 4)
	assert.Equal(t, []string{
		"w-2-vm: 401: token [secret]", "w-3-vm: before hook failed: w-3 is not changed, because the change of w-2 failed",
		"pulumi up: exit status 255, see above",
	}, n.done.Error[:3])
	assert.True(t, strings.HasPrefix(n.done.Error[3], "[secret] ää"), n.done.Error[3])
	assert.Len(t, []rune(n.done.Error[3]), errorLength+1)
	assert.Equal(t, request.Failed, n.done.Outcome)
	assert.Regexp(t, `^talos-proxmox deploy prod failed after 1m\d+s: w-1 restarted, w-2 not restarted\. w-2-vm: 401: token \[secret\] `+
		`\(https://git.example.org/a/b/actions/runs/7\)$`, n.done.Text)

	n = newTestNotifier(t.Context())
	n.done.Machines = nil
	n.finish(nil, nil)
	assert.Empty(t, n.done.Error)
	assert.Regexp(t, `^talos-proxmox deploy prod succeeded after 1m\d+s: no machine changed \(https`, n.done.Text)

	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()

	n = newTestNotifier(ctx)
	n.finish(errors.New("interrupted"), nil)
	assert.Equal(t, request.Interrupted, n.done.Outcome)
}

// TestRepairsWorthTelling: a timer's runs mostly find nothing, or wait.
func TestRepairsWorthTelling(t *testing.T) {
	t.Parallel()

	var nobody *notifier

	assert.False(t, nobody.repaired(nil))
	assert.False(t, nobody.repaired([]operations.Repair{{Action: operations.RepairWait}}))

	n := newTestNotifier(t.Context())
	assert.True(t, n.repaired([]operations.Repair{
		{Action: operations.RepairWait}, {Node: "w-4", Action: operations.RepairRefuse, Why: "it answers", Command: "talos-proxmox replace prod w-4"},
	}))
	n.finish(nil, nil)
	assert.Contains(t, n.done.Text, "w-4: refuse: it answers. A person can: talos-proxmox replace prod w-4")
}

func TestWhereToSee(t *testing.T) {
	t.Parallel()

	environment := func(pairs ...string) func(string) string {
		return func(name string) string {
			for i := 0; i < len(pairs); i += 2 {
				if pairs[i] == name {
					return pairs[i+1]
				}
			}

			return ""
		}
	}

	assert.Equal(t, "https://git.example.org/acme/clusters/actions/runs/17", whereToSee(environment(
		"GITHUB_SERVER_URL", "https://git.example.org", "GITHUB_REPOSITORY", "acme/clusters", "GITHUB_RUN_ID", "17")))
	assert.Equal(t, "https://gitlab.example.org/jobs/1", whereToSee(environment("CI_JOB_URL", "https://gitlab.example.org/jobs/1")))
	assert.Contains(t, whereToSee(environment()), "the output on ")
}

// TestSecretsOfAConfiguration are the texts that the stack file does not show.
func TestSecretsOfAConfiguration(t *testing.T) {
	t.Parallel()

	type value = struct {
		Value  string `json:"value"`
		Secret bool   `json:"secret"`
	}

	config := recovery.Config{
		"proxmoxve:apiToken":     value{"me@pve!x=0000-1111", true},
		"talos-proxmox:clusters": value{`[{"name": "production", "patches": ["machine: {secret: 1}"], "count": 3, "short": "abc"}]`, true},
		"talos-proxmox:hosts":    value{`[{"name": "a-plain-name"}]`, false},
	}
	assert.ElementsMatch(t, []string{"me@pve!x=0000-1111", "machine: {secret: 1}"},
		config.Secrets("config:\n  talos-proxmox:clusters:\n    - name: production\n      patches: [{secure: x}]\n"))
}
