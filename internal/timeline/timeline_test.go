package timeline_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/timeline"
)

const (
	prefix = "urn:pulumi:prod::talos-proxmox::talos-proxmox:cluster:TalosCluster$"
	vm     = prefix + "proxmoxve:index/virtualMachine:VirtualMachine::prod-cp-1-vm"
	gate   = prefix + "command:local:Command::prod-healthy"
)

func metadata(op apitype.OpType, urn string) apitype.StepEventMetadata {
	custom := &apitype.StepEventStateMetadata{Custom: true, Inputs: map[string]any{"stdin": "[secret]"}}

	return apitype.StepEventMetadata{Op: op, URN: urn, Old: custom, New: custom}
}

func begins(at int, op apitype.OpType, urn string) apitype.EngineEvent {
	return apitype.EngineEvent{Timestamp: at, ResourcePreEvent: &apitype.ResourcePreEvent{Metadata: metadata(op, urn)}}
}

func ends(at int, op apitype.OpType, urn string) apitype.EngineEvent {
	return apitype.EngineEvent{Timestamp: at, ResOutputsEvent: &apitype.ResOutputsEvent{Metadata: metadata(op, urn)}}
}

func fails(at int, op apitype.OpType, urn string) apitype.EngineEvent {
	return apitype.EngineEvent{Timestamp: at, ResOpFailedEvent: &apitype.ResOpFailedEvent{Metadata: metadata(op, urn)}}
}

func says(at int, severity, urn, text string) apitype.EngineEvent {
	return apitype.EngineEvent{Timestamp: at, DiagnosticEvent: &apitype.DiagnosticEvent{
		URN: urn, Severity: severity, Message: "<{%fg 1%}>" + text + "<{%reset%}>\n", Ephemeral: severity == "info",
	}}
}

func summary(at int, result apitype.OperationResult, preview bool) apitype.EngineEvent {
	return apitype.EngineEvent{Timestamp: at, SummaryEvent: &apitype.SummaryEvent{Result: result, IsPreview: preview}}
}

// log returns what the engine writes.
func log(t *testing.T, events ...apitype.EngineEvent) []byte {
	t.Helper()

	var b bytes.Buffer

	for i, e := range events {
		e.Sequence = i
		require.NoError(t, json.NewEncoder(&b).Encode(e))
	}

	return b.Bytes()
}

func at(second int64) time.Time { return time.Unix(second, 0) }

// newRun is a run that waits for a machine.
func newRun(t *testing.T) []byte {
	t.Helper()

	component := begins(101, "create", "urn:pulumi:prod::talos-proxmox::talos-proxmox:cluster:TalosCluster::prod")
	metadata := &component.ResourcePreEvent.Metadata
	metadata.Old, metadata.New = nil, &apitype.StepEventStateMetadata{}
	prelude := &apitype.PreludeEvent{Config: map[string]string{"a": "not to be seen"}}

	return log(
		t, apitype.EngineEvent{Timestamp: 100, PreludeEvent: prelude},
		component, begins(101, "create", "urn:pulumi:prod::p::pulumi:providers:command::default"),
		begins(101, "same", prefix+"talos:machine/secrets:Secrets::prod-secrets"),
		begins(102, "refresh", vm), begins(103, "delete-replaced", vm), ends(110, "delete-replaced", vm),
		begins(111, "create-replacement", vm), begins(112, "create", gate), says(120, "info", gate, "waiting for prod-cp-1"),
		says(121, "info", "", "about no resource"),
	)
}

func TestRunInProgress(t *testing.T) {
	t.Parallel()

	r := timeline.Read(bytes.NewReader(append(newRun(t), `{"sequence": 9, "timestamp": 1`...)))
	require.NotNil(t, r)
	assert.Equal(t, at(100), r.Started)
	assert.Equal(t, at(121), r.Last, "a line that is being written does not count yet")
	assert.False(t, r.Ended || r.Failed || r.Preview)
	assert.Equal(t, [2]int{1, 1}, [2]int{r.Unchanged, r.Refreshed})

	require.Len(t, r.Steps, 3, "components and providers are no steps")
	assert.Equal(t, "delete the former", r.Steps[0].Operation)
	assert.Equal(t, 7*time.Second, r.Steps[0].Duration(at(500)))
	assert.Equal(t, "create anew", r.Steps[1].Operation)
	assert.Zero(t, r.Steps[1].Ended)
	assert.Equal(t, "prod-healthy", r.Steps[2].Resource)
	assert.Equal(t, "waiting for prod-cp-1", r.Steps[2].Message)
	assert.Equal(t, 18*time.Second, r.Steps[2].Duration(at(130)))
	assert.Len(t, r.Running(), 2)

	assert.False(t, r.IsSilent(at(121).Add(timeline.Silence)))
	assert.True(t, r.IsSilent(at(122).Add(timeline.Silence)), "it waits for something else, or was killed")
}

func TestRunThatEnded(t *testing.T) {
	t.Parallel()

	end := apitype.EngineEvent{Timestamp: 133, CancelEvent: &apitype.CancelEvent{}}

	r := timeline.Read(bytes.NewReader(append(newRun(t), log(
		t, ends(130, "create-replacement", vm), says(131, "error", gate, "sdk-v2/provider2.go:515: sdk.helper_schema: no route to host: provider=proxmox@6.18.1"), fails(131, "create", gate),
		says(131, "error", "", "update failed"), summary(132, apitype.OperationResultFailed, false), end,
	)...)))
	assert.True(t, r.Ended)
	assert.True(t, r.Failed)
	assert.Empty(t, r.Running())
	assert.True(t, r.Steps[2].Failed)
	assert.False(t, r.Steps[1].Failed)
	assert.Equal(t, []string{"prod-healthy: no route to host", "update failed"}, r.Errors)
	assert.False(t, r.IsSilent(at(9999)))

	r = timeline.Read(bytes.NewReader(log(t, begins(1, "create", vm), ends(2, "create", vm),
		summary(2, apitype.OperationResultSucceeded, false), end)))
	assert.True(t, r.Ended)
	assert.False(t, r.Failed)

	r = timeline.Read(bytes.NewReader(log(t, begins(1, "create", vm), ends(2, "create", vm),
		summary(2, apitype.OperationResultSucceeded, false),
		says(7, "error", "", "Detected that pulumi-resource-proxmoxve exited prematurely. \n This is *always* a bug"), end)))
	assert.False(t, r.Failed, "the CLI did not wait for a plugin")
	assert.Empty(t, r.Errors)

	preview := begins(1, "create", vm)
	preview.ResourcePreEvent.Planning = true
	r = timeline.Read(bytes.NewReader(log(t, preview, summary(2, apitype.OperationResultSucceeded, true), end)))
	assert.True(t, r.Preview)
	assert.True(t, r.Ended)

	assert.Nil(t, timeline.Read(bytes.NewReader(nil)))
}

// TestFile: a log is read again when it grows, and when the next run begins it anew.
func TestFile(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "log")
	file := timeline.NewFile(path)

	r, err := file.Run()
	require.NoError(t, err)
	assert.Nil(t, r)

	require.NoError(t, os.WriteFile(path, newRun(t), 0o600))

	first, err := file.Run()
	require.NoError(t, err)
	assert.Len(t, first.Steps, 3)

	again, err := file.Run()
	require.NoError(t, err)
	assert.Same(t, first, again)

	require.NoError(t, os.WriteFile(path, append(newRun(t), log(t, ends(130, "create-replacement", vm))...), 0o600))

	r, err = file.Run()
	require.NoError(t, err)
	assert.Len(t, r.Running(), 1)

	require.NoError(t, os.WriteFile(path, nil, 0o600))

	r, err = file.Run()
	require.NoError(t, err)
	assert.Nil(t, r)

	_, err = timeline.NewFile(filepath.Join(path, "below a file")).Run()
	require.Error(t, err)
}
