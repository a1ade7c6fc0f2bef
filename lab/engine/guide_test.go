package engine_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/permissions"
	"talos-proxmox/lab/datacentre"
)

// guide is the document whose commands the test executes, at most maxCommands of them.
const (
	guide       = project + "/docs/getting-started.md"
	maxCommands = 24
)

// writeFile writes a file that the guide shows.
func (r *reader) writeFile(name, content string) {
	r.Helper()

	content += r.labAdditions(name)
	path := filepath.Join(r.clone, name)
	require.NoError(r, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(r, os.WriteFile(path, []byte(content), 0o600))
}

// runCommand runs one command as the reader does, whose shell keeps its variables.
func (r *reader) runCommand(command string) (string, error) {
	cmd := exec.CommandContext(r.Context(), "bash", "-euo", "pipefail", "-c",
		`if [ -e "$STATE" ]; then source "$STATE"; fi; `+command+"\n"+`export -p > "$STATE"`)
	cmd.Dir, cmd.Env = r.clone, r.env

	switch {
	case strings.Contains(command, "proxmoxve:apiToken"):
		value := regexp.MustCompile(`│ value +│ (\S+) +│`).FindStringSubmatch(r.output.String())
		require.NotNil(r, value, "no token was made: %s", &r.output)
		cmd.Stdin = strings.NewReader(permissions.Token + "=" + value[1])
	case strings.Contains(command, "pullSecret.password"):
		cmd.Stdin = strings.NewReader(r.git.password)
	}

	var out bytes.Buffer

	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()

	r.output.Write(out.Bytes())

	return out.String(), err
}

var codeBlock = regexp.MustCompile("(?ms)^```([a-z]+)(?: file=(\\S+))?\n(.*?)^```$")

// follow executes the guide from top to bottom; it calls before ahead of the last command.
func (r *reader) follow(before func()) {
	text, err := os.ReadFile(guide)
	require.NoError(r, err)

	var commands []string

	for _, b := range codeBlock.FindAllStringSubmatch(string(text), -1) {
		if b[1] == "shell" {
			commands = append(commands, strings.Split(strings.TrimSpace(strings.ReplaceAll(b[3], "\\\n", " ")), "\n")...)
		}
	}

	assert.LessOrEqual(r, len(commands), maxCommands, "the guide says how many commands it has")
	assert.Greater(r, len(commands), maxCommands/2)

	last := commands[len(commands)-1]

	for _, b := range codeBlock.FindAllStringSubmatch(string(text), -1) {
		switch {
		case b[2] != "":
			r.writeFile(b[2], b[3])
		case b[1] == "shell":
			for command := range strings.Lines(strings.ReplaceAll(b[3], "\\\n", " ")) {
				if command = strings.TrimSpace(command); command == last {
					before()
				}

				r.Log("$ " + command)

				out, err := r.runCommand(command)
				require.NoError(r, err, "%s\n%s", command, out)
			}
		}
	}
}

// requireOutput checks that the output has what the guide promises, and no secret.
func (r *reader) requireOutput() {
	output := r.output.String()

	for _, expected := range []string{
		"SHA256:", " checks: no problem", "gpu-gpu-1-vm", "clusters[0].gitops.age: a secret key was stored, encrypted",
		"kustomization.kustomize.toolkit.fluxcd.io/flux-system condition met",
		"kustomization.kustomize.toolkit.fluxcd.io/storage condition met",
	} {
		assert.Contains(r, output, expected)
	}

	assert.Regexp(r, `gpu-gpu-1 +v1\.\d+\.\d+ +1\n`, output, "a node offers its GPU")

	stack, err := os.ReadFile(filepath.Join(r.clone, "Pulumi.gpu.yaml"))
	require.NoError(r, err)

	connection, err := r.w.lab.Connection()
	require.NoError(r, err)
	assert.Contains(r, string(stack), "hostKey: "+connection.Hosts[0].HostKey)

	authority, err := os.ReadFile(connection.CA)
	require.NoError(r, err)

	certificate, _ := pem.Decode(authority)
	require.NotNil(r, certificate)

	fingerprint := strings.ReplaceAll(fmt.Sprintf("% X", sha256.Sum256(certificate.Bytes)), " ", ":")
	assert.Regexp(r, `talos-proxmox:proxmoxCluster: "?`+fingerprint, string(stack))

	tracked := r.git.git(r.clone, "ls-files")
	assert.Contains(r, tracked, "gitops/.sops.yaml")

	secret, err := os.ReadFile(filepath.Join(r.clone, "gitops/clusters/gpu/example.sops.yaml"))
	require.NoError(r, err)
	assert.NotContains(r, string(secret), "replace-me", "it is encrypted before it is committed")

	for _, value := range []string{r.git.password, r.storedValue(agePath), connection.PrivateKey} {
		assert.NotContains(r, output+string(stack), value)
	}
}

// requireRemoved checks that nothing is left on the host.
func (r *reader) requireRemoved() {
	assert.Empty(r, r.w.lab.Data.VMs())
	assert.Empty(r, r.w.lab.Data.Records(datacentre.PCIMappings))
}

// TestPlatformGuide follows docs/getting-started.md, with real Kubernetes and the real controllers of Flux.
func TestPlatformGuide(t *testing.T) {
	t.Parallel()

	r := newReader(t, platformWorld(t))
	r.follow(r.requireOutput)
	r.requireRemoved()
}
