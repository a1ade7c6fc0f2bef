package verbs

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/problem"
	"talos-proxmox/talosops/verb"
	"talos-proxmox/talosops/verbtest"
)

// run executes a verb about clusters.
func run(t *testing.T, verb string, req any, until string, args ...string) (stdout, stderr string, err error) {
	t.Helper()

	return verbtest.Run(t, Commands(), verb, req, until, args...)
}

// TestHelpHasTheFormOfARequest, which the strict decoder takes: only its values are wrong.
func TestHelpHasTheFormOfARequest(t *testing.T) {
	t.Parallel()

	for _, cmd := range Commands() {
		var help bytes.Buffer

		root := verbtest.Root([]*cobra.Command{cmd})
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

// refusedRequest is what is wrong with a request.
func refusedRequest[R any, P interface {
	*R
	Problems() problem.List
}](text string, req P,
) error {
	cmd := verb.New("", "", "", func(_ *cobra.Command, _ *json.Decoder, read P) (any, error) {
		*req = *read

		return nil, nil
	})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs([]string{})
	cmd.SetIn(strings.NewReader(text))
	cmd.SetOut(io.Discard)

	return cmd.Execute()
}
