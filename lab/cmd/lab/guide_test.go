package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/control"
	"talos-proxmox/lab/server"
)

// guide is a document whose blocks are followed to the letter.
const guide = project + "/docs/first-deployment.md"

// guideTime bounds what a reader would wait for.
const guideTime = 5 * time.Minute

var block = regexp.MustCompile("(?ms)^```([a-z]+) (runnable|file=\\S+)\n(.*?)^```$")

// pulumiShim gives the engine's operations to the lab, which has the addresses and credentials that the guide's reader
// has; all else is the real CLI's.
const pulumiShim = `#!/bin/bash
set -euo pipefail
case "$1" in
  preview | up | destroy) verb=$1; shift; exec "%[1]s" "$verb" --project "$PWD" --dir "%[2]s" ${@/--yes/--parallel=64} ;;
  stack) if [ "$2" = output ]; then set -- -C "%[2]s/work" "$@"; fi ;;
esac
exec "%[3]s" "$@"
`

// TestFirstDeploymentGuide does what docs/first-deployment.md says, in a copy of the project, with a host that answers
// for the guide's.
func TestFirstDeploymentGuide(t *testing.T) {
	t.Parallel()

	for _, tool := range []string{"ssh", "ssh-keyscan", "jq", "kubectl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("the guide needs %s, which is not installed here: its commands are not run", tool)
		}
	}

	c := newCommand(t, "127.182")
	clone := filepath.Join(filepath.Dir(c.dir), "clone")
	text, err := os.ReadFile(guide)
	require.NoError(t, err)

	blocks := block.FindAllStringSubmatch(string(text), -1)
	require.GreaterOrEqual(t, len(blocks), 8)
	cloneProject(t, clone)

	for _, b := range blocks {
		if name, isFile := strings.CutPrefix(b[2], "file="); isFile {
			require.NoError(t, os.WriteFile(filepath.Join(clone, name), []byte(b[3]), 0o600))
		}
	}

	start := exec.Command(c.path, "start", "--project", clone, "--dir", c.dir, "--network", c.network, "--speed", "60")
	out, err := start.CombinedOutput()
	require.NoError(t, err, string(out))

	status, err := control.NewClient(c.dir).Status(t.Context())
	require.NoError(t, err)

	environment := readersMachine(t, c, clone, status.Connection)
	said := ""

	for _, b := range blocks {
		if b[2] != "runnable" {
			continue
		}

		ctx, cancel := context.WithTimeout(t.Context(), guideTime)
		run := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", b[3])
		run.Dir, run.Env = clone, environment
		out, err := run.CombinedOutput()

		cancel()
		require.NoError(t, err, "%s\n%s", b[3], out)
		said += string(out)
	}

	for _, expected := range []string{
		"pve-manager/", "local-lvm", "ssh-ed25519 AAAA", "first-general-2", "NotReady", "control-plane",
	} {
		assert.Contains(t, said, expected)
	}

	assert.NotContains(t, said, status.Connection.APIToken)

	status, err = control.NewClient(c.dir).Status(t.Context())
	require.NoError(t, err)
	assert.Empty(t, status.VMs, "the host is as it was")
}

// cloneProject copies the committed files that the guide's commands need into a folder.
func cloneProject(t *testing.T, clone string) {
	t.Helper()

	root, err := filepath.Abs(project)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(clone, 0o700))

	for _, name := range []string{"cmd", "components", "internal", "stacks", "tools"} {
		require.NoError(t, os.CopyFS(filepath.Join(clone, name), os.DirFS(filepath.Join(root, name))))
	}

	for _, name := range []string{"Makefile", "Pulumi.yaml", "go.mod", "go.sum", "main.go", ".bin"} {
		require.NoError(t, os.Symlink(filepath.Join(root, name), filepath.Join(clone, name)))
	}
}

// readersMachine returns the environment of someone who follows the guide: a home with an SSH key, and 10.0.0.2 where
// the lab's host is.
func readersMachine(t *testing.T, c *command, clone string, connection server.Connection) []string {
	t.Helper()

	home, bin := filepath.Join(filepath.Dir(c.dir), "home"), filepath.Join(filepath.Dir(c.dir), "bin")
	passphrase := filepath.Join(c.dir, "passphrase")
	host := connection.Hosts[0]
	key := filepath.Join(home, ".ssh", "id_ed25519")
	realPulumi, err := filepath.Abs(filepath.Join(project, ".bin", "pulumi"))
	require.NoError(t, err)

	sshConfig := fmt.Sprintf("Host 10.0.0.2\n  HostName %s\n  Port %d\n  IdentityFile %s\n  StrictHostKeyChecking accept-new\n  UserKnownHostsFile %s\n",
		host.Address, host.Port, key, filepath.Join(home, "known_hosts"))

	for path, content := range map[string]string{
		key:                                   connection.PrivateKey,
		filepath.Join(home, ".ssh", "config"): sshConfig,
		passphrase:                            "of the guide's reader",
		filepath.Join(bin, "pulumi"):          fmt.Sprintf(pulumiShim, c.path, c.dir, realPulumi),
		filepath.Join(bin, "ssh"): fmt.Sprintf(
			"#!/bin/sh\nexec /usr/bin/ssh -F %q \"$@\"\n", filepath.Join(home, ".ssh", "config"),
		),
		filepath.Join(bin, "ssh-keyscan"): fmt.Sprintf(
			"#!/bin/sh\nexec /usr/bin/ssh-keyscan -p %d -t ed25519 %s\n", host.Port, host.Address,
		),
		filepath.Join(c.dir, "state", ".keep"): "",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}

	for _, name := range []string{"pulumi", "ssh", "ssh-keyscan"} {
		require.NoError(t, os.Chmod(filepath.Join(bin, name), 0o700))
	}

	return []string{
		"HOME=" + home, "PATH=" + bin + ":" + filepath.Join(clone, ".bin") + ":" + os.Getenv("PATH"), "PROXMOX_TOKEN=" + connection.APIToken,
		"PULUMI_BACKEND_URL=file://" + filepath.Join(c.dir, "state"), "PULUMI_CONFIG_PASSPHRASE_FILE=" + passphrase,
		"PULUMI_HOME=" + filepath.Join(home, ".pulumi"),
		"PULUMI_SKIP_UPDATE_CHECK=true",
	}
}
