// Package report writes what a stack will consist of for people: as Markdown, which Pulumi Cloud shows as a stack's
// readme, and as a page with a picture. Everything follows from the plan; nothing secret is in it.
package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
)

// view is a plan arranged by hosts, as both forms show it.
type view struct {
	Stack    string
	Protect  bool
	Hosts    []host
	Clusters []cluster
	Machines []machine // of all clusters, control planes first, then those of none
	Warnings []string
}

type host struct {
	Name, Address string
	Prepared      bool
	Machines      []machine
	Cores, Memory usage // GiB
	Disks         []disk
	GPUs          []gpu
}

// usage is what machines take of something the host has; Of is 0 where the stack does not say.
type usage struct{ Planned, Of int }

// Percent is 0 where the host's size is not set.
func (u usage) Percent() int {
	if u.Of == 0 {
		return 0
	}

	return u.Planned * 100 / u.Of
}

// Short writes 12 of 32, or 12.
func (u usage) Short() string {
	if u.Of == 0 {
		return fmt.Sprint(u.Planned)
	}

	return fmt.Sprintf("%d of %d", u.Planned, u.Of)
}

// String writes 12 of 32 (37 %), or 12.
func (u usage) String() string {
	if u.Of == 0 {
		return u.Short()
	}

	return fmt.Sprintf("%s (%d %%)", u.Short(), u.Percent())
}

type disk struct {
	Datastore string
	GiB       int
}

type gpu struct {
	Name, PCI, Generation, Machine string
}

type cluster struct {
	Name, Endpoint, Talos, Kubernetes, VIP, CIDR string
	// Fixes is the first day without fixes, and for what; a dash where none is known.
	Fixes                  string
	ControlPlanes, Workers int
	GPUOperator            bool
}

type machine struct {
	Name, Cluster, Kind, Host, Address, MAC, System string
	VMID, Cores, MemoryMiB, DiskGiB                 int
	GPUs                                            []string
}

// Kinds of machines; they are also the classes of the page's style.
const (
	kindControlPlane = "control plane"
	kindWorker       = "worker"
	kindGPUWorker    = "GPU worker"
	kindMachine      = "machine"
)

// Class is the machine's class in the page's style.
func (m machine) Class() string { return strings.ReplaceAll(strings.ToLower(m.Kind), " ", "-") }

// MemoryGiB is the memory without needless decimals.
func (m machine) MemoryGiB() string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(m.MemoryMiB)/1024), ".0")
}

func arrange(p *spec.Plan) view {
	v := view{Stack: p.Stack, Protect: p.Protect, Warnings: p.Warnings}
	for _, c := range p.Clusters {
		v.Clusters = append(v.Clusters, arrangeCluster(c))
		for _, n := range c.Nodes() {
			v.Machines = append(v.Machines, arrangeMachine(n))
		}
	}

	for _, m := range p.Machines {
		v.Machines = append(v.Machines, arrangeVM(m.VM))
	}

	for _, h := range p.Hosts {
		v.Hosts = append(v.Hosts, arrangeHost(p, h))
	}

	return v
}

func arrangeCluster(c spec.Cluster) cluster {
	arranged := cluster{
		Name:          c.Name,
		Endpoint:      c.Endpoint,
		Talos:         c.TalosVersion,
		Kubernetes:    c.KubernetesVersion,
		Fixes:         "–",
		CIDR:          c.Network.CIDR.String(),
		ControlPlanes: len(c.ControlPlanes), Workers: len(c.Workers), GPUOperator: c.GPUOperator,
	}
	ends := talos.EndsOfLife(c.TalosVersion, c.KubernetesVersion)
	slices.SortStableFunc(ends, func(a, b talos.EndOfLife) int { return strings.Compare(a.Day, b.Day) })

	if len(ends) > 0 {
		arranged.Fixes = ends[0].Day + " (" + ends[0].Of + ")"
	}

	if c.VIP.IsValid() {
		arranged.VIP = c.VIP.String()
	}

	return arranged
}

// arrangeVM is a machine of no cluster, and what a node's machine has in common with it.
func arrangeVM(n spec.VM) machine {
	m := machine{
		Name:    n.Name,
		Kind:    kindMachine,
		Host:    n.Host,
		Address: "by DHCP",
		MAC:     n.MAC,
		System:  "Talos " + n.Template.Version,
		VMID:    n.VMID, Cores: n.Cores, MemoryMiB: n.MemoryMiB, DiskGiB: n.DiskGiB,
	}
	if n.Address.IsValid() {
		m.Address = n.Address.Addr().String()
	}

	if n.Template.System != nil {
		m.System = n.Template.System.Title()
	}

	for _, extra := range n.ExtraDisks {
		m.DiskGiB += extra.SizeGiB
	}

	return m
}

func arrangeMachine(n spec.Node) machine {
	m := arrangeVM(n.VM)
	m.Cluster, m.Kind = n.Cluster, kindWorker

	for _, g := range n.GPUs {
		m.GPUs = append(m.GPUs, g.Name)
	}

	switch {
	case n.Role == spec.RoleControlPlane:
		m.Kind = kindControlPlane
	case len(n.GPUs) > 0:
		m.Kind = kindGPUWorker
	}

	return m
}

func arrangeHost(p *spec.Plan, h spec.Host) host {
	arranged := host{
		Name: h.Name, Address: h.Address.String(), Prepared: h.Prep != nil,
		Cores: usage{Of: h.Cores}, Memory: usage{Of: h.MemoryMiB / 1024},
	}
	memory, disks, users := 0, map[string]int{}, map[string]string{}

	add := func(m machine, n spec.VM) {
		arranged.Machines = append(arranged.Machines, m)
		arranged.Cores.Planned += n.Cores
		memory += n.MemoryMiB

		disks[n.Datastore] += n.DiskGiB
		for _, extra := range n.ExtraDisks {
			disks[extra.Datastore] += extra.SizeGiB
		}
	}

	for _, c := range p.Clusters {
		for _, n := range c.Nodes() {
			if n.Host != h.Name {
				continue
			}

			add(arrangeMachine(n), n.VM)

			for _, g := range n.GPUs {
				users[g.PCI] = n.Name
			}
		}
	}

	for _, m := range p.Machines {
		if m.Host == h.Name {
			add(arrangeVM(m.VM), m.VM)
		}
	}

	arranged.Memory.Planned = (memory + 1023) / 1024
	for _, datastore := range slices.Sorted(maps.Keys(disks)) {
		arranged.Disks = append(arranged.Disks, disk{Datastore: datastore, GiB: disks[datastore]})
	}

	for _, g := range h.GPUs {
		arranged.GPUs = append(arranged.GPUs, gpu{Name: g.Name, PCI: g.PCI, Generation: g.Generation, Machine: users[g.PCI]})
	}

	slices.SortStableFunc(arranged.Machines, func(a, b machine) int { return cmp.Compare(a.VMID, b.VMID) })

	return arranged
}
