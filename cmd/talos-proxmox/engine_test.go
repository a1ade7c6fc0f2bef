package main

import (
	"io"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/cli"
)

// TestACLIWithoutALanguageHost is named where it fails, and not where it has one.
func TestACLIWithoutALanguageHost(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("PATH", folder+"/none")

	cmd := &cobra.Command{}
	cmd.SetErr(io.Discard)
	cmd.SetContext(t.Context())

	e := engine{Stack: cli.Stack{Name: "prod", Folder: folder}}
	e.Pulumi = script(t, folder, "pulumi", "echo 'error: PULUMI_ACCESS_TOKEN must be set for login' >&2; exit 3")

	err := e.run(cmd, io.Discard, "preview")
	require.ErrorContains(t, err, "nobody is logged in: run `pulumi login`")
	assert.NotContains(t, err.Error(), "language host")

	e.Pulumi = script(t, folder, "pulumi", "exit 3")

	err = e.run(cmd, io.Discard, "preview")
	require.ErrorContains(t, err, "has no language host for Go (pulumi-language-go)")

	script(t, filepath.Dir(e.Pulumi), "pulumi-language-go", "exit 0")

	err = e.run(cmd, io.Discard, "preview")
	require.ErrorContains(t, err, "see above")
	assert.NotContains(t, err.Error(), "language host")
}
