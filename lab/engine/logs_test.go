package engine_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	command "talos-proxmox/internal/cli"
)

// TestLogsOfTheCLIStaySmall lets the CLI find more logs of earlier runs than it may keep, with the environment that the
// lab and talos-proxmox give it.
func TestLogsOfTheCLIStaySmall(t *testing.T) {
	t.Parallel()

	cli, err := findCLI()
	require.NoError(t, err)

	home := t.TempDir()
	env := append(
		command.PulumiEnvironment(), "PULUMI_HOME="+home, "HOME="+home, "PULUMI_SKIP_UPDATE_CHECK=true",
	)

	const files, each = 100, 1 << 20

	logs := filepath.Join(home, "logs")
	require.NoError(t, os.Mkdir(logs, 0o700))

	for i := range files {
		name := fmt.Sprintf("prod-%s.log", time.Now().Add(-time.Duration(i)*time.Minute).Format("20060102T150405"))
		require.NoError(t, os.WriteFile(filepath.Join(logs, name), make([]byte, each), 0o600))
	}

	list := exec.CommandContext(t.Context(), cli.Path, "plugin", "ls")
	list.Env = env
	said, err := list.CombinedOutput()
	require.NoError(t, err, "%s", said)

	total := int64(0)

	require.NoError(t, filepath.WalkDir(logs, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			info, infoErr := entry.Info()
			require.NoError(t, infoErr)

			total += info.Size()
		}

		return err
	}))

	assert.Less(t, total, int64(51<<20), "what the logs take together")
	assert.Positive(t, total, "the newest ones stay")
}
