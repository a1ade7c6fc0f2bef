// Package clustertest has clusters for tests: fakes of the clients of their APIs, and servers of these APIs on
// loopback.
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

// Of is a cluster of these APIs.
func Of(talos talosapi.API, kubernetes kube.Interface) (*cluster.Cluster, *bytes.Buffer) {
	said := &bytes.Buffer{}

	return &cluster.Cluster{
		Watch:         &checks.Watch{Timeout: time.Minute, Interval: time.Millisecond, Progress: said},
		ControlPlanes: ControlPlanes().ControlPlanes, Talos: talos, Kubernetes: kubernetes,
	}, said
}

// NewRunning has nodes that are Ready.
func NewRunning() (*cluster.Cluster, *Fake, *bytes.Buffer) {
	controlPlanes, workers := ControlPlanes().ControlPlanes, Workers()
	f := NewFake(controlPlanes, workers)

	for i, n := range slices.Concat(controlPlanes, workers) {
		f.NodeList[i].Ready, f.NodeList[i].Address = true, n.Address
		f.Boots[n.Address] = "first"

		if i < len(controlPlanes) {
			f.Statuses[n.Address] = talosapi.EtcdStatus{HasLeader: true}
			f.MemberList[i].PeerURLs = []string{"https://" + n.Address + ":2380"}
		}
	}

	c, said := Of(f, f)
	c.Interval = time.Second

	return c, f, said
}

// NewLeased is a running cluster with its Lease.
func NewLeased(t *testing.T, change func(*Leases)) (*cluster.Cluster, *Leases, *bytes.Buffer) {
	t.Helper()

	c, f, said := NewRunning()
	c.Timeout, c.Interval = 5*time.Minute, 2*time.Second

	if change != nil {
		change(&f.Leases)
	}

	return c, &f.Leases, said
}
