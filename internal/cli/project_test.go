package cli_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/cli"
)

// TestTheUsersPassphraseIsNotTheLabs: the user's passphrase is kept for other stacks and unset for the lab's.
func TestTheUsersPassphraseIsNotTheLabs(t *testing.T) {
	const passphrase = "PULUMI_CONFIG_PASSPHRASE"

	t.Setenv(passphrase, "of the user")

	folder := t.TempDir()

	for _, file := range []string{"lab/go.mod", ".lab/work/Pulumi.lab.yaml", "Pulumi.prod.yaml", ".bin/pulumi"} {
		path := filepath.Join(folder, file)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, nil, 0o700)) //nolint:gosec // one is a program
	}

	p := &cli.Project{}
	p.Flags(&cobra.Command{})
	p.Folder = folder

	_, err := p.Stack("prod")
	require.NoError(t, err)
	assert.Equal(t, "of the user", os.Getenv(passphrase))

	lab, err := p.Stack("lab")
	require.NoError(t, err)

	_, set := os.LookupEnv(passphrase)
	assert.False(t, set, "it would take precedence over the file")
	assert.Contains(t, lab.Environment, passphrase+"_FILE="+filepath.Join(folder, ".lab", "passphrase"))
}
