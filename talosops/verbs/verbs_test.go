package verbs

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"talos-proxmox/talosops/verbtest"
)

// run executes a verb about clusters.
func run(t *testing.T, verb string, req any, until string, args ...string) (stdout, stderr string, err error) {
	t.Helper()

	return verbtest.Run(t, Commands(), verb, req, until, args...)
}

// TestHelpHasTheFormOfARequest: the strict decoder accepts the help's example; only its values are invalid.
func TestHelpHasTheFormOfARequest(t *testing.T) {
	t.Parallel()

	for _, cmd := range Commands() {
		var help bytes.Buffer

		root := verbtest.NewRoot([]*cobra.Command{cmd})
		root.SetOut(&help)
		root.SetArgs([]string{cmd.Name(), "--help"})
		require.NoError(t, root.ExecuteContext(t.Context()))

		_, form, _ := strings.Cut(help.String(), "request.json:\n")
		form, _, _ = strings.Cut(form, "\n\n")

		root.SetIn(strings.NewReader(form))
		root.SetArgs([]string{cmd.Name(), "--help=false"})
		require.ErrorContains(t, root.ExecuteContext(t.Context()), "the request has ", cmd.Name())
	}
}
