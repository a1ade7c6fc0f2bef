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

// gitOpsStack is a project with one stack; more are further settings of its cluster.
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

// TestGitOpsKey: the secret key reaches the CLI's standard input and nothing else, the public one the tree; a key that
// is there is kept.
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

	said, err := key(folder, "--recipient", other.Recipient().String())
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
	assert.NotContains(t, said+rules, secret.String())
	assert.Contains(t, said, secret.Recipient().String())

	_, err = key(folder)
	require.ErrorContains(t, err, ".sops.yaml is there already, and not changed")
	assert.Equal(t, secret.String(), read("secret"), "the key that files are encrypted to is kept")

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

// TestPermissions: a stack gets the roles that it needs, in the words of its Proxmox.
func TestPermissions(t *testing.T) {
	t.Parallel()

	const account = "      proxmox: {region: home, csi: {storageClasses: [{name: fast, datastore: local-lvm}]}"

	for name, test := range map[string]struct {
		more, release string
		roles         []string
		not           string
	}{
		"what every stack needs": {roles: []string{"TalosProxmox"}, not: "VM.Monitor"},
		"Proxmox VE 8":           {release: "8", roles: []string{"TalosProxmox"}, not: "VM.GuestAgent.Audit"},
		"storage": {
			more:  account + "}\n",
			roles: []string{"TalosProxmox", "TalosProxmoxAccounts", "TalosCSIMachines", "TalosCSIStorage", "TalosCCMMachines"},
			not:   "--roles TalosCSI",
		},
		"storage with roles of its own": {
			more:  account + ", roles: make}\n",
			roles: []string{"TalosProxmox", "TalosProxmoxAccounts", "TalosProxmoxRoles"},
		},
		"an order of starts": {
			more:  "      workers: [{name: general, count: 1, cores: 2, memoryMiB: 4096, diskGiB: 20, startupOrder: 2}]\n",
			roles: []string{"TalosProxmox", "TalosProxmoxStartup"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			arguments := []string{"permissions", "one", "--project", gitOpsStack(t, test.more)}
			if test.release != "" {
				arguments = append(arguments, "--proxmox", test.release)
			}

			out, err := output(arguments...)
			require.NoError(t, err)

			var roles []string

			for line := range strings.Lines(out) {
				if rest, made := strings.CutPrefix(line, "pveum role add "); made {
					roles = append(roles, strings.Fields(rest)[0])
				}
			}

			// The host of gitOpsStack has a GPU.
			assert.ElementsMatch(t, append(test.roles, "TalosProxmoxGPU"), roles)

			if test.not != "" {
				assert.NotContains(t, out, test.not)
			}
		})
	}

	_, err := output("permissions", "one", "--project", gitOpsStack(t, ""), "--proxmox", "7")
	require.ErrorContains(t, err, "--proxmox 7: the roles are known of Proxmox VE 8 and 9")
}
