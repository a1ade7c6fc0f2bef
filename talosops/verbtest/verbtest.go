// Package verbtest executes verbs in tests.
package verbtest

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// watcher records what is written, and calls onFound once that contains text.
type watcher struct {
	bytes.Buffer
	text    string
	onFound func()
}

// Write implements io.Writer.
func (w *watcher) Write(data []byte) (int, error) {
	n, err := w.Buffer.Write(data)
	if strings.Contains(w.String(), w.text) {
		w.onFound()
	}

	return n, err
}

// Run executes a command with a request as the program sends it, and interrupts it once its progress contains until.
func Run(
	t *testing.T, commands []*cobra.Command, verb string, req any, until string, args ...string,
) (stdout, stderr string, err error) {
	t.Helper()

	in, err := json.Marshal(req)
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	root := NewRoot(commands)

	var out bytes.Buffer

	progress := &watcher{text: until, onFound: cancel}

	root.SetArgs(append([]string{verb}, args...))
	root.SetIn(bytes.NewReader(in))
	root.SetOut(&out)
	root.SetErr(progress)
	err = root.ExecuteContext(ctx)

	return out.String(), progress.String(), err
}

// NoInterrupt occurs in no progress: Run then never interrupts the command.
const NoInterrupt = "\x00"

// AssertNoSecrets asserts that a text has no long word of the configurations.
func AssertNoSecrets(t *testing.T, configurations, text string) {
	t.Helper()

	for word := range strings.FieldsSeq(configurations) {
		if len(word) > 60 {
			assert.NotContains(t, text, word)
		}
	}
}

// InBubble runs a parallel subtest in a synctest bubble.
func InBubble(t *testing.T, name string, check func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, check)
	})
}

// RequireError requires an error with all of these texts, or none if there is no text.
func RequireError(t *testing.T, err error, wants ...string) {
	t.Helper()

	if len(wants) == 0 || wants[0] == "" {
		require.NoError(t, err)
	}

	for _, want := range wants {
		if want != "" {
			require.ErrorContains(t, err, want)
		}
	}
}

// NewRoot returns a root command with these commands.
func NewRoot(commands []*cobra.Command) *cobra.Command {
	root := &cobra.Command{Use: "talosops", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(commands...)

	return root
}
