package engine_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	command "talos-proxmox/internal/cli"
)

// TestOutputOfCommands checks what a user sees of an up: sentences, neither qm's output nor JSON. A stack of an earlier
// version, whose commands logged everything, does not change.
func TestOutputOfCommands(t *testing.T) {
	t.Parallel()

	w, s := upOne(t, 1, 1)
	fewer := s
	fewer.Clusters = []cluster{clusterOne(1, 0)}
	w.up(fewer.yaml(t)) // a worker leaves

	for line := range strings.Lines(w.output()) {
		assert.NotRegexp(t, `^\{|: *\{"|(creating|updating|deleting).* \{|update VM \d+:|transferred |disk-0`, line)
	}

	deployment, commands := w.deployment(fewer.yaml(t)), 0

	for _, r := range deployment.Resources {
		if slices.Contains(r.IgnoreChanges, "logging") {
			commands++

			delete(r.Inputs, "logging")
			delete(r.Outputs, "logging")
		}
	}

	require.Greater(t, commands, 4)
	w.setDeployment(fewer.yaml(t), deployment)
	assert.Empty(t, w.up(fewer.yaml(t), optup.ExpectNoChanges()))
}

// TestLogsOfTheCLIStaySmall starts the CLI with more old logs than it may keep, with the environment that the lab and
// talos-proxmox give it.
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
	output, err := list.CombinedOutput()
	require.NoError(t, err, "%s", output)

	total := int64(0)

	require.NoError(t, filepath.WalkDir(logs, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			info, infoErr := entry.Info()
			require.NoError(t, infoErr)

			total += info.Size()
		}

		return err
	}))

	assert.Less(t, total, int64(51<<20), "the size of all logs")
	assert.Positive(t, total, "the newest ones stay")
}
