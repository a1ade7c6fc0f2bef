package engine_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// TestAccountsGetExistingRoles: without the privilege to create roles, accounts get existing ones; accounts with roles
// of their own, as in stacks from before that was the default, keep them until the stack file says otherwise. The model
// of Kubernetes takes no Secrets, so that each run ends there, after the changes on Proxmox.
func TestAccountsGetExistingRoles(t *testing.T) {
	t.Parallel()

	const (
		account  = "talos-lab-one-ccm"
		own      = "/vms/2000 @pve -machines"
		existing = "/vms/2000 @pve TalosCCMMachines"
	)

	w := newWorld(t, testSpeed)
	plain := w.stack(1, 0).yaml(t)
	unset := withProxmox(plain, "{region: homelab, cloudController: {}}")

	var rights []datacentre.ACL // to create roles

	for _, rule := range w.lab.Data.ACLs() {
		if rule.Role == "TalosProxmoxRoles" {
			rights = append(rights, rule)
			require.NoError(t, w.lab.Data.DeleteACL(rule))
		}
	}

	require.NotEmpty(t, rights)

	up := func(roles string) steps {
		done, err := w.tryUp(t.Context(), strings.Replace(unset, "{}}", "{}"+roles+"}", 1))
		require.ErrorContains(t, err, "Secret kube-system/proxmox-cloud-controller-manager: the Kubernetes API refuses it")

		return done
	}

	up("")
	assert.Contains(t, w.aclsOf(account), existing)

	for _, rule := range rights {
		require.NoError(t, w.lab.Data.SetACL(rule))
	}

	up(", roles: make")
	assert.Contains(t, w.aclsOf(account), own)

	done := up("")

	assert.Contains(t, w.aclsOf(account), own)

	for step, op := range done {
		if strings.HasPrefix(step, "Acl ") || strings.HasPrefix(step, "Role ") {
			assert.Equal(t, "same", op, step)
		}
	}

	up(", roles: existing")
	assert.Contains(t, w.aclsOf(account), existing)
}
