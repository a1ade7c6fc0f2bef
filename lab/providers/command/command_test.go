package command_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/blang/semver"
	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/integration"
	"github.com/pulumi/pulumi/sdk/v3/go/common/tokens"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/providers/command"
	"talos-proxmox/lab/providers/providertest"
)

const (
	localType  tokens.Type = "command:local:Command"
	remoteType tokens.Type = "command:remote:Command"
)

// What the tests call a provider with.
var (
	urn, inputs   = providertest.URN, providertest.Inputs
	check, create = providertest.Check, providertest.Create
)

func server(ctx context.Context, t *testing.T) integration.Server {
	t.Helper()

	provider, err := command.Provider()
	require.NoError(t, err)

	s, err := integration.NewServer(ctx, "command", semver.MustParse("1.2.1"), integration.WithProvider(provider))
	require.NoError(t, err)

	return s
}

func TestLocalCommands(t *testing.T) {
	t.Parallel()

	tests := map[string]struct {
		inputs         map[string]any
		stdout, stderr string
		refusal        string
	}{
		"captures both streams": {
			inputs: map[string]any{"create": "echo out; echo err >&2"}, stdout: "out", stderr: "err",
		},
		"keeps all but the last line feed": {inputs: map[string]any{"create": "printf 'a\n\n'"}, stdout: "a\n"},
		"passes standard input":            {inputs: map[string]any{"create": "cat", "stdin": "text"}, stdout: "text"},
		"passes the environment": {
			inputs: map[string]any{"create": "echo $A", "environment": map[string]any{"A": "b"}}, stdout: "b",
		},
		"has the variables of the engine": {inputs: map[string]any{"create": "echo $PATH"}, stdout: os.Getenv("PATH")},
		"states variables over those": {
			inputs: map[string]any{"create": "echo $PATH", "environment": map[string]any{"PATH": "b"}}, stdout: "b",
		},
		"does nothing without a command": {inputs: map[string]any{"update": "exit 1"}},
		"fails with what the command said": {
			inputs:  map[string]any{"create": "echo why >&2; exit 3"},
			refusal: "exit status 3: running \"echo why >&2; exit 3\":\nwhy\n",
		},
		"captures what it does not show": {inputs: map[string]any{"create": "echo out", "logging": "none"}, stdout: "out"},
	}

	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			created, err := create(t, server(t.Context(), t), localType, inputs(test.inputs))
			if test.refusal != "" {
				require.ErrorContains(t, err, test.refusal)

				return
			}

			require.NoError(t, err)
			assert.True(t, strings.HasPrefix(created.ID, "it"), created.ID)
			assert.Equal(t, test.stdout, created.Properties.Get("stdout").AsString())
			assert.Equal(t, test.stderr, created.Properties.Get("stderr").AsString())
		})
	}
}

func TestTheLifeOfALocalCommand(t *testing.T) {
	t.Parallel()

	s := server(t.Context(), t)
	log := filepath.Join(t.TempDir(), "log")
	said := func(word string) string {
		return "echo " + word + " $PULUMI_COMMAND_STDOUT >> " + log + "; echo " + word
	}

	first := inputs(map[string]any{"create": said("create"), "delete": said("delete"), "triggers": []string{"a"}})
	preview, err := s.Create(p.CreateRequest{Urn: urn(localType), Properties: first, DryRun: true})
	require.NoError(t, err)
	assert.True(t, preview.Properties.Get("stdout").IsComputed())
	assert.NoFileExists(t, log, "a preview runs nothing")

	created, err := create(t, s, localType, first)
	require.NoError(t, err)

	diff := func(in property.Map) p.DiffResponse {
		d, err := s.Diff(
			p.DiffRequest{Urn: urn(localType), State: created.Properties, OldInputs: first, Inputs: check(t, s, localType, in)},
		)
		require.NoError(t, err)

		return d
	}

	assert.False(t, diff(first).HasChanges)

	changed := inputs(map[string]any{"create": said("again"), "delete": said("delete"), "triggers": []string{"a"}})
	assert.Equal(t, p.Update, diff(changed).DetailedDiff["create"].Kind)

	triggers := diff(inputs(map[string]any{"create": said("create"), "delete": said("delete")}))
	assert.Equal(t, p.DeleteReplace, triggers.DetailedDiff["triggers"].Kind)

	updated, err := s.Update(p.UpdateRequest{Urn: urn(localType), State: created.Properties, Inputs: changed})
	require.NoError(t, err)
	assert.Equal(t, "again", updated.Properties.Get("stdout").AsString())

	own := inputs(
		map[string]any{
			"create": said("create"), "update": said("update"), "delete": said("delete"), "addPreviousOutputInEnv": false,
		},
	)
	updated, err = s.Update(p.UpdateRequest{Urn: urn(localType), State: updated.Properties, Inputs: own})
	require.NoError(t, err)

	require.NoError(t, s.Delete(p.DeleteRequest{Urn: urn(localType), Properties: updated.Properties}))

	text, err := os.ReadFile(log)
	require.NoError(t, err)
	assert.Equal(t, "create\nagain create\nupdate\ndelete\n", string(text))
}

func TestACancelledCommandTakesItsChildrenAlong(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	s := server(ctx, t)

	done := make(chan error, 1)

	go func() {
		// The child would outlive its shell, and would keep the output open.
		_, err := s.Create(p.CreateRequest{Urn: urn(localType), Properties: inputs(map[string]any{
			"create": "cd " + folder + "; (trap 'echo cleaned > cleaned; exit' TERM; touch started; while :; do sleep 0.05; done) & wait",
		})})
		done <- err
	}()

	exists := func(name string) func() bool {
		return func() bool {
			_, err := os.Stat(filepath.Join(folder, name))

			return err == nil
		}
	}

	require.Eventually(t, exists("started"), time.Minute, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.Eventually(t, exists("cleaned"), time.Minute, time.Millisecond)
}
