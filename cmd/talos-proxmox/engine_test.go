package main

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/cli"
)

// TestEngineAddsHints for known errors of the CLI.
func TestEngineAddsHints(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()

	cmd := &cobra.Command{}
	cmd.SetErr(io.Discard)
	cmd.SetContext(t.Context())

	e := engine{Stack: cli.Stack{Name: "prod", Folder: folder}}

	for out, want := range map[string]string{
		"error: PULUMI_ACCESS_TOKEN must be set for login": "see above; nobody is logged in: run `pulumi login`",
		"error: something else":                            "see above",
	} {
		e.Pulumi = script(t, folder, "pulumi", "echo '"+out+"' >&2; exit 3")
		err := e.run(cmd, io.Discard, "preview")
		require.ErrorContains(t, err, want)
		assert.Equal(t, strings.Contains(want, ";"), strings.Contains(err.Error(), ";"), err)
	}
}
