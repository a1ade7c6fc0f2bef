package main

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/problem"
)

// run executes a verb about clusters.
func run(t *testing.T, verb string, req any, until string, args ...string) (stdout, stderr string, err error) {
	t.Helper()

	return runCommand(t, commands(), verb, req, until, args...)
}

// refusedRequest is what is wrong with a request.
func refusedRequest[R any, P interface {
	*R
	problems() problem.List
}](text string, req P,
) error {
	cmd := command("", "", "", "", func(_ *cobra.Command, _ *json.Decoder, read P) (any, error) {
		*req = *read

		return nil, nil
	})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs([]string{})
	cmd.SetIn(strings.NewReader(text))
	cmd.SetOut(io.Discard)

	return cmd.Execute()
}
