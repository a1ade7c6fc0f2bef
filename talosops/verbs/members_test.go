package verbs

import (
	"errors"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/talosapi"
	"talos-proxmox/talosops/verb"
)

// TestMembersOfACluster: without a control plane that has etcd data, nobody lists who belongs to the cluster.
func TestMembersOfACluster(t *testing.T) {
	t.Parallel()

	c, f, _ := clustertest.NewRunning()
	f.NoEtcdDataOn["127.0.9.1"], f.NoEtcdDataOn["127.0.9.2"] = true, true
	f.NodeServices["127.0.9.1"] = []talosapi.Service{{ID: "etcd", State: "Preparing"}}
	f.NodeServices["127.0.9.2"] = nil // boots
	f.Down["127.0.9.3"] = errors.New("no route to host")

	result, err := runMembers(t.Context(), &verb.Session{Cluster: c}, &membersRequest{
		Members: request.Members{Common: clustertest.ControlPlanes(), Nodes: clustertest.Workers()},
	})
	require.NoError(t, err)
	assert.Equal(t, request.MembersResult{Waiting: []string{"cp-1"}}, result)
}

// TestALeaveRequestOutlivesClientCertificates: it is as old as the last change of its node's settings.
func TestALeaveRequestOutlivesClientCertificates(t *testing.T) {
	t.Parallel()

	ca, err := talos.TalosAuthority.New(time.Now())
	require.NoError(t, err)

	later := time.Now().AddDate(3, 0, 0)
	req := leaveRequest{Leave: request.Leave{
		Common: clustertest.ControlPlanes(), Node: clustertest.Workers()[0], Authority: &ca,
	}}
	require.Empty(t, req.openTalos(later))

	authority, err := talos.TalosconfigAuthority(req.Talosconfig)
	require.NoError(t, err)
	assert.Equal(t, string(ca.Certificate), string(authority))

	config, err := clientconfig.FromString(req.Talosconfig)
	require.NoError(t, err)
	pair, err := client.CertificateFromConfigContext(config.Contexts[config.Context])
	require.NoError(t, err)
	assert.True(t, pair.Leaf.NotBefore.Before(later))
	assert.WithinRange(t, pair.Leaf.NotAfter, later, later.AddDate(0, 0, 2), "it is not valid much longer than it takes")

	req.Authority = &talos.Authority{Certificate: []byte("a secret"), Key: []byte("another")}
	problems := req.openTalos(later)
	require.Len(t, problems, 1)
	assert.NotContains(t, problems.Error(), "secret:")
}
