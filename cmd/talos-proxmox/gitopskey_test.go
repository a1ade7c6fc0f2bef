package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// gitOpsStack creates a project with one stack; more holds further settings of its cluster.
func gitOpsStack(t *testing.T, more string) (folder string) {
	t.Helper()

	folder = t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(folder, "gitops"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "Pulumi.one.yaml"), fmt.Appendf(nil, `config:
  proxmoxve:endpoint: https://10.0.0.2:8006/
  talos-proxmox:hosts: [{name: pve1, address: 10.0.0.2, gpus: [{name: rtx4000, pci: "01:00", generation: ada}]}]
  talos-proxmox:templates: {talos: {version: v1.14.4, datastore: local-lvm}}
  talos-proxmox:clusters:
    - name: one
      network: {cidr: 10.0.0.0/24, gateway: 10.0.0.1}
      controlPlane: {count: 1, cores: 2, memoryMiB: 4096, diskGiB: 20}
%s`, more), 0o600))

	return folder
}

// TestGitOpsKey: the private key reaches the CLI's standard input and nothing else, the public one the tree; existing
// keys are kept.
func TestGitOpsKey(t *testing.T) {
	t.Parallel()

	const gitops = "      gitops: {url: https://git.example.org/fleet.git"

	folder := gitOpsStack(t, gitops+"}\n")
	pulumi := script(t, folder, "pulumi", `echo "$@" > arguments; cat > secret`)
	other, err := age.GenerateX25519Identity()
	require.NoError(t, err)

	key := func(folder string, more ...string) (string, error) {
		return output(append([]string{"gitops", "key", "one", "--project", folder, "--pulumi", pulumi}, more...)...)
	}
	_, err = key(folder, "--recipient", other.String())
	require.ErrorContains(t, err, "--recipient: is a secret key")
	require.NotContains(t, err.Error(), other.String())

	out, err := key(folder, "--recipient", other.Recipient().String())
	require.NoError(t, err)

	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(folder, name))
		require.NoError(t, err)

		return string(text)
	}
	secret, err := age.ParseX25519Identity(read("secret"))
	require.NoError(t, err)

	rules := read("gitops/.sops.yaml")
	assert.Contains(t, rules, "age: "+secret.Recipient().String()+","+other.Recipient().String()+"\n")
	assert.Equal(t, "config set --secret --path talos-proxmox:clusters[0].gitops.age --stack one --non-interactive",
		strings.TrimSpace(read("arguments")))
	assert.NotContains(t, out+rules, secret.String())
	assert.Contains(t, out, secret.Recipient().String())

	_, err = key(folder)
	require.ErrorContains(t, err, ".sops.yaml exists already and is not changed")
	assert.Equal(t, secret.String(), read("secret"), "the existing key is kept")

	for more, want := range map[string]string{
		"": "clusters[0].gitops: cluster one has none",
		gitops + ", age: {secure: v1:abc}}\n": "clusters[0].gitops.age: cluster one has a key; " +
			"`pulumi config get --path 'talos-proxmox:clusters[0].gitops.age'` shows it",
	} {
		_, err = key(gitOpsStack(t, more))
		require.ErrorContains(t, err, want)
	}

	_, err = key(folder, "--cluster", "two")
	require.ErrorContains(t, err, `--cluster "two": name one of one`)
	_, err = key(folder, "--repository", filepath.Join(folder, "nowhere"))
	require.ErrorContains(t, err, "give its repository with --repository")
}
