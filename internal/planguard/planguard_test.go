package planguard

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	// closedEvent is an error of the Pulumi CLI 3.274 about a plugin that it closed too early (source:
	// sdk/go/common/resource/plugin).
	closedEvent = `{"sequence": 9, "diagnosticEvent": {"prefix": "error: ", "message": "Detected that /p/pulumi-resource-command exited prematurely. \n       This is *always* a bug in the provider.\n", "color": "never", "severity": "error", "streamID": 1}}`
	// realEvent is an error that makes the preview incomplete.
	realEvent = `{"sequence": 3, "diagnosticEvent": {"urn": "urn:pulumi:prod::talos-proxmox::proxmoxve:VM/virtualMachine:VirtualMachine::prod-cp-1-vm", "prefix": "error: ", "message": "rpc error: code = Unavailable desc = error reading from server: EOF", "color": "never", "severity": "error"}}`
)

func eventsWith(result string, after ...string) string {
	summary := `{"sequence": 8, "summaryEvent": {"isPreview": true, "resourceChanges": {"same": 3}, "PolicyPacks": {}, "result": "` + result + `"}}`

	return strings.Join(append([]string{`{"sequence": 0, "preludeEvent": {"config": {}}}`, summary}, after...), "\n")
}

func TestFinished(t *testing.T) {
	t.Parallel()

	const failedExit, goodExit = "\n" + `{"exitStatus": 255}`, "\n" + `{"exitStatus": 0}`
	for name, test := range map[string]struct {
		output   string
		finished bool
		errors   []string // their beginnings
	}{
		"good events": {output: eventsWith("succeeded"), finished: true},
		"events with plugins closed too early": {
			output: eventsWith("succeeded", closedEvent, closedEvent), finished: true,
		},
		"an error that the summary does not count is shown": {
			output: eventsWith("succeeded", realEvent), finished: true, errors: []string{"rpc error"},
		},
		"events of a preview that failed": {
			output: eventsWith("failed", realEvent), errors: []string{"rpc error"},
		},
		"events of a plugin that did crash": {
			output: eventsWith("failed", realEvent, closedEvent), errors: []string{"rpc error", "Detected that"},
		},
		"events that failed without a word": {output: eventsWith("failed")},
		"events that were cut off":          {output: `{"sequence": 0, "preludeEvent": {"config": {}}}`},
		"good events of a CLI that failed":  {output: eventsWith("succeeded") + failedExit},
		"good events of a CLI that did not": {
			output: eventsWith("succeeded", closedEvent) + goodExit, finished: true,
		},
		"events cut off, and a CLI that did not fail": {output: `{"sequence": 0, "preludeEvent": {"config": {}}}` + goodExit},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			p, err := Parse(strings.NewReader(test.output))
			require.NoError(t, err)
			assert.Equal(t, test.finished, p.Finished)
			require.Len(t, p.Errors, len(test.errors))
			assert.Equal(t, test.finished && strings.Contains(test.output, closedEvent), p.Shutdown() != "", p.Shutdown())

			for i, beginning := range test.errors {
				assert.True(t, strings.HasPrefix(p.Errors[i].Text, beginning), p.Errors[i].Text)
			}
		})
	}
}

func TestWhatIsNoPreview(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"":                             "it has no events; did the preview fail?",
		`{"exitStatus": 255}`:          "it has no events; did the preview fail?",
		`{"config": {}, "steps": []}`:  "a line that is none of the engine's events",
		`{"sequence": 0, "preludeEven`: "unexpected EOF",
	} {
		_, err := Parse(strings.NewReader(text))
		require.ErrorIs(t, err, ErrFormat, text)
		assert.ErrorContains(t, err, want, text)
	}
}
