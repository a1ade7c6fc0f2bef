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

// guide is a document whose commands are followed to the letter, and most is how many they may be.
const (
	guide = project + "/docs/getting-started.md"
	most  = 24
)

// write lays a file that the guide shows.
func (r *reader) write(name, content string) {
	r.Helper()

	content += r.labOwn(name)
	path := filepath.Join(r.clone, name)
	require.NoError(r, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(r, os.WriteFile(path, []byte(content), 0o600))
}

// do runs one command as the reader does, whose shell keeps its variables.
func (r *reader) do(command string) (string, error) {
	cmd := exec.CommandContext(r.Context(), "bash", "-euo", "pipefail", "-c",
		`if [ -e "$STATE" ]; then source "$STATE"; fi; `+command+"\n"+`export -p > "$STATE"`)
	cmd.Dir, cmd.Env = r.clone, r.env

	switch {
	case strings.Contains(command, "proxmoxve:apiToken"):
		value := regexp.MustCompile(`│ value +│ (\S+) +│`).FindStringSubmatch(r.said.String())
		require.NotNil(r, value, "no token was made: %s", &r.said)
		cmd.Stdin = strings.NewReader(permissions.Token + "=" + value[1])
	case strings.Contains(command, "pullSecret.password"):
		cmd.Stdin = strings.NewReader(r.git.password)
	}

	var out bytes.Buffer

	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()

	r.said.Write(out.Bytes())

	return out.String(), err
}

var block = regexp.MustCompile("(?ms)^```([a-z]+)(?: file=(\\S+))?\n(.*?)^```$")

// follow does what the guide says, from its top to its end; before is called before its last command.
func (r *reader) follow(before func()) {
	text, err := os.ReadFile(guide)
	require.NoError(r, err)

	var commands []string

	for _, b := range block.FindAllStringSubmatch(string(text), -1) {
		if b[1] == "shell" {
			commands = append(commands, strings.Split(strings.TrimSpace(strings.ReplaceAll(b[3], "\\\n", " ")), "\n")...)
		}
	}

	assert.LessOrEqual(r, len(commands), most, "the guide says how many commands it has")
	assert.Greater(r, len(commands), most/2)

	last := commands[len(commands)-1]

	for _, b := range block.FindAllStringSubmatch(string(text), -1) {
		switch {
		case b[2] != "":
			r.write(b[2], b[3])
		case b[1] == "shell":
			for command := range strings.Lines(strings.ReplaceAll(b[3], "\\\n", " ")) {
				if command = strings.TrimSpace(command); command == last {
					before()
				}

				r.Log("$ " + command)

				out, err := r.do(command)
				require.NoError(r, err, "%s\n%s", command, out)
			}
		}
	}
}

// checkSaid sees that the reader was told what the guide promises, and no secret.
func (r *reader) checkSaid() {
	said := r.said.String()

	for _, expected := range []string{
		"SHA256:", "checks, all fine.", "gpu-gpu-1-vm", "clusters[0].gitops.age: a secret key was stored, encrypted",
		"kustomization.kustomize.toolkit.fluxcd.io/flux-system condition met",
		"kustomization.kustomize.toolkit.fluxcd.io/storage condition met",
	} {
		assert.Contains(r, said, expected)
	}

	assert.Regexp(r, `gpu-gpu-1 +v1\.\d+\.\d+ +1\n`, said, "a node offers its GPU")

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

	for _, value := range []string{r.git.password, r.config(agePath), connection.PrivateKey} {
		assert.NotContains(r, said+string(stack), value)
	}
}

// checkRemoved sees the host as it was.
func (r *reader) checkRemoved() {
	assert.Empty(r, r.w.lab.Data.VMs())
	assert.Empty(r, r.w.lab.Data.Records(datacentre.Mappings))
}

// TestPlatformGuide follows docs/getting-started.md, with real Kubernetes and the real controllers of Flux.
func TestPlatformGuide(t *testing.T) {
	t.Parallel()

	r := newReader(t, platformWorld(t))
	r.follow(r.checkSaid)
	r.checkRemoved()
}
