package planguard

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// event returns an event of a step on a resource, as the engine writes it.
func event(kind, op, resource string, planning bool, more ...string) string {
	extra := strings.Join(more, "")

	return fmt.Sprintf(`{"sequence": 1, %q: {"planning": %t, "metadata": {"op": %q, "urn": "urn:pulumi:prod::talos-proxmox::%s"%s}}}`,
		kind, planning, op, resource, extra)
}

const (
	vm            = "proxmoxve:VM/virtualMachine:VirtualMachine::"
	localCommand  = "command:local:Command::"
	began         = "resourcePreEvent"
	ended         = "resOutputsEvent"
	failedEvent   = "resOpFailedEvent"
	memoryDiff    = `, "diffs": ["memory"], "old": {"inputs": {"memory": {"dedicated": 4096}}, "outputs": {"memory": {"dedicated": 4096}}}`
	upgradeResult = `, "new": {"outputs": {"stdout": "{\"upgraded\":[\"one-cp-1\"]}\n"}}`
)

// TestParseUpdate reads what an update did to machines, and what it failed at.
func TestParseUpdate(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		events []string
		wants  []MachineChange
		errors int
	}{
		"every change, sorted": {
			events: []string{
				event(began, "create", vm+"one-w-10-vm", false), event(ended, "create", vm+"one-w-10-vm", false),
				event(began, "update", vm+"one-w-9-vm", false, memoryDiff), event(ended, "update", vm+"one-w-9-vm", false, memoryDiff),
				event(began, "delete-replaced", vm+"one-w-2-vm", false), event(ended, "delete-replaced", vm+"one-w-2-vm", false),
				event(began, "replace", vm+"one-w-2-vm", false), event(ended, "replace", vm+"one-w-2-vm", false),
				event(began, "create-replacement", vm+"one-w-2-vm", false), event(ended, "create-replacement", vm+"one-w-2-vm", false),
				event(began, "update", localCommand+"one-w-2-configuration", false),
				event(ended, "update", localCommand+"one-w-2-configuration", false),
				event(began, "delete", vm+"one-w-3-vm", false), event(ended, "delete", vm+"one-w-3-vm", false),
				event(began, "update", localCommand+"one-w-4-configuration", false),
				event(ended, "update", localCommand+"one-w-4-configuration", false),
				event(began, "update", localCommand+"one-talos", false), event(ended, "update", localCommand+"one-talos", false, upgradeResult),
				event(began, "same", vm+"one-w-5-vm", false), event(ended, "same", vm+"one-w-5-vm", false),
			},
			wants: []MachineChange{
				{Name: "one-cp-1", Change: "upgraded"},
				{Name: "one-w-2", Change: "replaced"},
				{Name: "one-w-3", Change: "removed"},
				{Name: "one-w-4", Change: "configured"},
				{Name: "one-w-9", Change: "restarted"},
				{Name: "one-w-10", Change: "created"},
			},
		},
		"a preview, which no update followed": {
			events: []string{event(began, "create", vm+"one-w-1-vm", true), event(ended, "create", vm+"one-w-1-vm", true)},
		},
		"changes that failed, or did not end": {
			events: []string{
				event(began, "update", vm+"one-w-1-vm", false, memoryDiff), event(failedEvent, "update", vm+"one-w-1-vm", false),
				realEvent, event(began, "create", vm+"one-w-2-vm", false), `{"sequence": 9, "resOutp`,
			},
			wants: []MachineChange{
				{Name: "one-w-1", Change: "restarted", Failed: true},
				{Name: "one-w-2", Change: "created", Failed: true},
			},
			errors: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			done, err := ParseUpdate(strings.NewReader(strings.Join(test.events, "\n")))
			require.NoError(t, err)
			assert.Equal(t, test.wants, done.Machines)
			assert.Len(t, done.Errors, test.errors)
		})
	}

	_, err := ParseUpdate(strings.NewReader("<html>"))
	require.ErrorIs(t, err, ErrFormat)
}

// TestErrorMessage: what the bridge of the published plugin puts around an error of Proxmox is gone, and nothing else.
func TestErrorMessage(t *testing.T) {
	t.Parallel()

	const text = "error updating VM: received an HTTP 500 response - Reason: VM is locked (backup)"

	for _, logged := range []string{
		text, "<{%fg 1%}>sdk-v2/provider2.go:515: sdk.helper_schema: " + text + ": provider=proxmox@6.18.1<{%reset%}>\n",
	} {
		assert.Equal(t, Message{Resource: "one-w-1-vm", Text: text}, ErrorMessage("urn:pulumi:lab::talos-proxmox::a:b:C::one-w-1-vm", logged))
	}

	assert.Equal(t, "a provider=x of mine", ErrorMessage("", "a provider=x of mine").Text)
}
