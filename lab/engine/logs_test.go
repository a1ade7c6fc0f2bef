package engine_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLogsOfTheCLIStaySmall lets the CLI find more logs of earlier runs than the Makefile allows, with the environment
// that the Makefile gives to its commands.
func TestLogsOfTheCLIStaySmall(t *testing.T) {
	t.Parallel()

	cli, err := findCLI()
	require.NoError(t, err)

	show := exec.CommandContext(t.Context(), "make", "--silent", "--eval", "environment: ; @env", "environment")
	show.Dir = project
	out, err := show.Output()
	require.NoError(t, err)

	home := t.TempDir()
	env := []string{"PULUMI_HOME=" + home, "HOME=" + home, "PULUMI_SKIP_UPDATE_CHECK=true"}

	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "PULUMI_LOG_") {
			env = append(env, strings.TrimSpace(line))
		}
	}

	const files, each = 100, 1 << 20

	logs := filepath.Join(home, "logs")
	require.NoError(t, os.Mkdir(logs, 0o700))

	for i := range files {
		name := fmt.Sprintf("prod-%s.log", time.Now().Add(-time.Duration(i)*time.Minute).Format("20060102T150405"))
		require.NoError(t, os.WriteFile(filepath.Join(logs, name), make([]byte, each), 0o600))
	}

	command := exec.CommandContext(t.Context(), cli.Path, "plugin", "ls")
	command.Env = env
	said, err := command.CombinedOutput()
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
