package vmdiff_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/vmdiff"
)

func TestPlacedKeepsRunningMachinesOnTheirHosts(t *testing.T) {
	t.Parallel()

	node := func(name, host string, index int, change func(*spec.Node)) spec.Node {
		n := spec.Node{VM: spec.VM{Name: name, Host: host, Index: index, Path: "clusters[0].workers[0]"}}
		change(&n)

		return n
	}
	nothing := func(*spec.Node) {}
	plan := &spec.Plan{Clusters: []spec.Cluster{{Workers: []spec.Node{
		node("stays", "pve2", 0, nothing), node("is there", "pve1", 1, nothing), node("new", "pve2", 2, nothing),
		node("stated", "pve2", 3, func(n *spec.Node) { n.HostPinned = true }),
		node("with a GPU", "pve2", 4, func(n *spec.Node) { n.GPUs = []spec.Device{{Name: "rtx4000"}} }),
	}}}}

	var machines []vmdiff.Machine
	for _, name := range []string{"stays", "is there", "stated", "with a GPU"} {
		machines = append(machines, vmdiff.Machine{Name: name, Host: "pve1"})
	}

	placed, stays := vmdiff.WithCurrentHosts(plan, machines)

	var hosts []string
	for _, n := range placed.Clusters[0].Nodes() {
		hosts = append(hosts, n.Host)
	}

	assert.Equal(t, []string{"pve1", "pve1", "pve2", "pve2", "pve2"}, hosts)
	assert.Equal(t, []string{
		`stays runs on pve1 and was not moved; a new machine would be placed on pve2. clusters[0].workers[0].nodes: {"1": {host: pve2}} moves it`,
	}, stays)
	require.Equal(t, "pve2", plan.Clusters[0].Workers[0].Host, "the plan itself stays as it is")
}
