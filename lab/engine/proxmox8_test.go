package engine_test

import (
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/permissions"
	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/server"
)

// TestProxmox8 brings a cluster up with the role of Proxmox VE 8, and checks the error if privileges are missing.
func TestProxmox8(t *testing.T) {
	t.Parallel()

	w := openWorld(t, server.Options{Speed: testSpeed, Hosts: 2, Release: datacentre.PVE8})
	role := permissions.Roles()[0]
	require.ErrorContains(
		t, w.lab.Data.PutRole(role.ID, role.Privileges()...), "invalid privilege 'VM.GuestAgent.Audit'",
	)

	s := w.stack(1, 1)
	w.up(s.yaml(t))
	w.requireRunning(2)
	w.up(s.yaml(t), optup.Refresh(), optup.ExpectNoChanges())

	require.NoError(t, w.lab.Data.PutRole(role.ID, "VM.Audit", "Sys.AccessNetwork"))

	_, err := w.preview(s.yaml(t))
	require.Error(t, err)
	assert.Contains(t, w.output(), "VM.Monitor, VM.PowerMgmt on /vms/2000")
}
