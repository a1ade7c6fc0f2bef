package cluster_test

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/talosapi"
)

func TestOpenClusterOverRealConnections(t *testing.T) {
	t.Parallel()

	served := clustertest.Serve(t, &clustertest.TalosNode{}, clustertest.HealthyAPI())
	machines, err := talosapi.New(served.Talosconfig)
	require.NoError(t, err)
	t.Cleanup(machines.Close)

	opening := &cluster.Cluster{Watch: &checks.Watch{Progress: &bytes.Buffer{}}, Talos: machines}
	c, err := opening.Connect(t.Context(), []request.Node{
		{Name: "cp-0", Address: netip.MustParseAddr("127.0.0.253")}, served.ControlPlanes[0],
	})
	require.NoError(t, err)

	nodes, address, err := c.ListNodes(t.Context())
	require.Error(t, c.Kubernetes.Ready(t.Context(), netip.MustParseAddr("127.0.0.253")))
	require.NoError(t, err)
	assert.Equal(t, served.Address, address)
	assert.Equal(t, "cp-1", nodes[0].Name)

	boot, err := c.Talos.BootID(t.Context(), address)
	require.NoError(t, err)
	assert.Equal(t, "8f14e45f", boot)

	alarms, err := c.Talos.EtcdAlarms(t.Context(), address)
	require.NoError(t, err)
	assert.Equal(t, []string{"NOSPACE of member 000000000000002a"}, alarms)

	_, err = opening.Connect(t.Context(), []request.Node{{Name: "cp-0", Address: netip.MustParseAddr("127.0.0.253")}})
	require.ErrorContains(t, err, "no control plane provides a kubeconfig:\ncp-0: dial tcp 127.0.0.253:50000: connect: connection refused")
}
