package verbs

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/problem"
	"talos-proxmox/talosops/verb"
	"talos-proxmox/talosops/verbtest"
)

// run executes a verb about clusters.
func run(t *testing.T, verb string, req any, until string, args ...string) (stdout, stderr string, err error) {
	t.Helper()

	return verbtest.Run(t, Commands(), verb, req, until, args...)
}

// refusedRequest is what is wrong with a request.
func refusedRequest[R any, P interface {
	*R
	Problems() problem.List
}](text string, req P,
) error {
	cmd := verb.New("", "", "", "", func(_ *cobra.Command, _ *json.Decoder, read P) (any, error) {
		*req = *read

		return nil, nil
	})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs([]string{})
	cmd.SetIn(strings.NewReader(text))
	cmd.SetOut(io.Discard)

	return cmd.Execute()
}
