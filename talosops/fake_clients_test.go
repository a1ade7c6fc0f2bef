package main

import (
	"bytes"
	"context"
	"io"
	"slices"
	"testing"
	"time"
)

// testCluster is a cluster of these APIs.
func testCluster(talos talosAPI, kubernetes kubernetesAPI) (*cluster, *bytes.Buffer) {
	said := &bytes.Buffer{}

	return &cluster{
		watch:         &watch{timeout: time.Minute, interval: time.Millisecond, progress: said},
		controlPlanes: testControlPlanes().ControlPlanes, talos: talos, kubernetes: kubernetes,
	}, said
}

// runningCluster has nodes that are Ready.
func runningCluster() (*cluster, *fakeRunning, *bytes.Buffer) {
	controlPlanes, workers := testControlPlanes().ControlPlanes, testWorkers()
	f := &fakeRunning{
		fakeCluster: healthyCluster(controlPlanes, workers),
		statuses:    map[string]etcdStatus{}, boots: map[string]string{}, pods: map[string][]kubePod{},
		budget: map[string]string{}, active: map[string]string{}, persistent: map[string]string{},
		gives: map[string]func(context.Context, io.Writer) error{},
	}

	for i, n := range slices.Concat(controlPlanes, workers) {
		f.nodesL[i].Ready, f.nodesL[i].Address = true, n.Address
		f.boots[n.Address] = "first"

		if i < len(controlPlanes) {
			f.statuses[n.Address] = etcdStatus{HasLeader: true}
			f.membersL[i].PeerURLs = []string{"https://" + n.Address + ":2380"}
		}
	}

	c, said := testCluster(f, f)
	c.interval = time.Second

	return c, f, said
}

func leased(t *testing.T, change func(*fakeLease)) (*cluster, *fakeLease, *bytes.Buffer) {
	t.Helper()

	c, f, said := runningCluster()
	c.timeout, c.interval = 5*time.Minute, 2*time.Second

	if change != nil {
		change(&f.fakeLease)
	}

	return c, &f.fakeLease, said
}
