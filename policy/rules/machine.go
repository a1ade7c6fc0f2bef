package rules

import (
	"slices"
	"strings"

	"talos-proxmox/internal/tokens"
)

// Tags of the program's machines.
const (
	tagTalos        = "talos"
	tagControlPlane = "controlplane"
	tagWorker       = "worker"
	tagCluster      = "cluster-" // followed by the cluster's name
)

// machine is a VM as policies see it.
type machine struct {
	resource

	Cores, MemoryMiB maybe[int]
	Host             maybe[string]
	Tags             maybe[[]string]
	Template         maybe[bool]
	Disks            []disk
}

type disk struct {
	Datastore maybe[string]
	SizeGiB   maybe[int]
}

func readMachine(r resource) machine {
	sockets := r.at("cpu", "sockets").number()
	cores := r.at("cpu", "cores").number()
	cores.Value *= max(sockets.Value, 1)
	cores.Known = cores.Known && sockets.Known

	m := machine{
		resource: r,
		Cores:    cores, MemoryMiB: r.at("memory", "dedicated").number(),
		Host: r.at("nodeName").text(), Tags: r.at("tags").texts(),
		Template: r.at("template").flag(),
	}

	disks, _ := r.at("disks").items()
	for _, d := range disks {
		m.Disks = append(m.Disks, disk{d.at("datastoreId").text(), d.at("size").number()})
	}

	return m
}

func (m machine) hasTag(tag string) bool { return m.Tags.Known && slices.Contains(m.Tags.Value, tag) }

// isTalosNode reports whether a machine was created by the program's components, or has the tag.
func (m machine) isTalosNode() bool { return m.isBelow(tokens.Nodes) || m.hasTag(tagTalos) }

// machines returns the VMs of the plan by name, without templates.
func (p plan) machines() []machine {
	var list []machine

	for _, r := range p.Resources {
		if r.Type != tokens.VirtualMachine {
			continue
		}

		if m := readMachine(r); !m.Template.Value {
			list = append(list, m)
		}
	}

	// The order of resources differs between runs.
	slices.SortStableFunc(list, func(a, b machine) int { return strings.Compare(a.Name, b.Name) })

	return list
}

// controlPlanes are a cluster's control planes. Complete is false while the role of a machine of the cluster is
// unknown.
type controlPlanes struct {
	Cluster, URN string
	Machines     []machine
	Complete     bool
}

// controlPlanes finds the clusters of the plan: by the component that machines belong to, otherwise by their tag.
func (p plan) controlPlanes() []controlPlanes {
	var list []controlPlanes

	index := map[string]int{}

	for _, m := range p.machines() {
		if !m.isTalosNode() {
			continue
		}

		name, urn := p.clusterOf(m)

		i, ok := index[name]
		if !ok {
			i, index[name] = len(list), len(list)
			list = append(list, controlPlanes{Cluster: name, URN: urn, Complete: true})
		}

		list[i].Complete = list[i].Complete && m.Tags.Known

		if m.hasTag(tagControlPlane) {
			list[i].Machines = append(list[i].Machines, m)
		}
	}

	return list
}

// clusterOf returns the name of a machine's cluster, and the URN for problems of the whole cluster.
func (p plan) clusterOf(m machine) (name, urn string) {
	for parent := m.Parent; parent != ""; {
		r, ok := p.byURN[parent]
		if !ok {
			break
		}

		if r.Type == tokens.TalosCluster {
			return r.Name, r.URN
		}

		parent = r.Parent
	}

	for _, tag := range m.Tags.Value {
		if name, ok := strings.CutPrefix(tag, tagCluster); ok {
			return name, m.URN
		}
	}

	return "", m.URN
}

func names(machines []machine) string {
	list := make([]string, len(machines))
	for i, m := range machines {
		list[i] = m.Name
	}

	return strings.Join(list, ", ")
}
