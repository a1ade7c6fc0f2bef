package main

import (
	"bytes"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOpenClusterOverRealConnections(t *testing.T) {
	t.Parallel()

	talos, kubernetes := newAuthority(t), newAuthority(t)
	n := &talosNode{name: "cp-1"}
	address, port := startNodeOf(t, n, talos, kubernetes, healthyAPI())
	n.kubeconfig = kubernetes.kubeconfig(t, "https://"+net.JoinHostPort(testVIP, port))

	machines, err := newTalosAPI(talos.talosconfig(t))
	require.NoError(t, err)
	t.Cleanup(machines.close)

	opening := &cluster{watch: &watch{progress: &bytes.Buffer{}}, talos: machines}
	c, err := opening.connect(t.Context(), []node{
		{Name: "cp-0", Address: "127.0.0.253"}, {Name: "cp-1", Address: address},
	})
	require.NoError(t, err)

	nodes, asked, err := c.listNodes(t.Context())
	require.Error(t, c.kubernetes.ready(t.Context(), "127.0.0.253"))
	require.NoError(t, err)
	assert.Equal(t, address, asked)
	assert.Equal(t, "cp-1", nodes[0].Name)

	boot, err := c.talos.bootID(t.Context(), address)
	require.NoError(t, err)
	assert.Equal(t, "8f14e45f", boot)

	alarms, err := c.talos.etcdAlarms(t.Context(), address)
	require.NoError(t, err)
	assert.Equal(t, []string{"NOSPACE of member 000000000000002a"}, alarms)

	_, err = opening.connect(t.Context(), []node{{Name: "cp-0", Address: "127.0.0.253"}})
	require.ErrorContains(t, err, "no control plane gives a kubeconfig:\ncp-0: dial tcp 127.0.0.253:50000: connect: connection refused")
}
