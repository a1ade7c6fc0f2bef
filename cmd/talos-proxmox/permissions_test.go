package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPermissions: a stack gets the roles that it needs, with the privileges of its Proxmox release.
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
			assert.ElementsMatch(t, append(test.roles, "TalosProxmoxDisks", "TalosProxmoxGPU", "TalosProxmoxMappings"), roles)
			assert.NotContains(t, out, " /storage --", "only the stack's own datastores")

			if test.not != "" {
				assert.NotContains(t, out, test.not)
			}
		})
	}

	_, err := output("permissions", "one", "--project", gitOpsStack(t, ""), "--proxmox", "7")
	require.ErrorContains(t, err, "--proxmox 7: the roles are defined for Proxmox VE 8 and 9")
}
