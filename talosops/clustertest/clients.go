// Package clustertest provides clusters for tests: fakes of the API clients, and API servers on loopback.
package clustertest

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/talosapi"
)

// NewCluster returns a cluster with these APIs, and the buffer of its progress.
func NewCluster(talos talosapi.API, kubernetes kube.Interface) (*cluster.Cluster, *bytes.Buffer) {
	progress := &bytes.Buffer{}

	return &cluster.Cluster{
		Watch:         &checks.Watch{Timeout: time.Minute, Interval: time.Millisecond, Progress: progress},
		ControlPlanes: ControlPlanes().ControlPlanes, Talos: talos, Kubernetes: kubernetes,
	}, progress
}

// NewRunning returns a healthy cluster: all nodes are Ready and all members of etcd have a leader.
func NewRunning() (*cluster.Cluster, *Fake, *bytes.Buffer) {
	controlPlanes, workers := ControlPlanes().ControlPlanes, Workers()
	f := NewFake(controlPlanes, workers)

	for i, n := range slices.Concat(controlPlanes, workers) {
		f.NodeList[i].Ready, f.NodeList[i].Address = true, n.Address
		f.Boots[n.Address.String()] = "first"

		if i < len(controlPlanes) {
			f.Statuses[n.Address.String()] = talosapi.EtcdStatus{HasLeader: true}
			f.MemberList[i].PeerURLs = []string{"https://" + n.Address.String() + ":2380"}
		}
	}

	c, progress := NewCluster(f, f)
	c.Interval = time.Second

	return c, f, progress
}

// NewLeased returns a running cluster and its Lease, which change may modify first.
func NewLeased(t *testing.T, change func(*Leases)) (*cluster.Cluster, *Leases, *bytes.Buffer) {
	t.Helper()

	c, f, progress := NewRunning()
	c.Timeout, c.Interval = 5*time.Minute, 2*time.Second

	if change != nil {
		change(&f.Leases)
	}

	return c, &f.Leases, progress
}
