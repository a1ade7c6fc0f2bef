// Package report describes a stack for people: as Markdown, which Pulumi Cloud shows as a stack's readme, and as a page
// with a picture. Everything is from the plan, without secrets.
package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"talos-proxmox/internal/spec"
)

// view is a plan grouped by hosts, for both formats.
type view struct {
	Stack    string
	Protect  bool
	Hosts    []host
	Clusters []cluster
	Machines []machine // of all clusters, control planes first; then plain machines
	Egress   []string  // domains and networks that the stack reaches; none = all
	Warnings []string
}

// Sized reports whether a host's memory for guests is set.
func (v view) Sized() bool {
	return slices.ContainsFunc(v.Hosts, func(h host) bool { return h.Memory.Of > 0 })
}

// NextSteps are the commands after an up: the clusters' credentials, and a look at their nodes.
func (v view) NextSteps() []string {
	lines := []string{"umask 077"}

	for _, c := range v.Clusters {
		for _, kind := range []string{"kubeconfig", "talosconfig"} {
			lines = append(lines, fmt.Sprintf(
				"pulumi stack output --stack %s --show-secrets --json %ss | jq -r '.[\"%s\"]' > %[2]s-%[3]s", v.Stack, kind, c.Name,
			))
		}

		look := "kubectl --kubeconfig kubeconfig-" + c.Name + " get nodes"
		if !c.HasCNI {
			look += "   # NotReady until a CNI is installed"
		}

		lines = append(lines, look)
	}

	return lines
}

type host struct {
	Name, Address string
	Prepared      bool
	Machines      []machine
	Cores, Memory usage // GiB
	Disks         []disk
	GPUs          []gpu
	State         HostState // zero in the report of a plan
}

// usage is how much of a host's resource is planned; Of is 0 if the stack file does not set it.
type usage struct{ Planned, Of int }

// Percent returns 0 if the host's size is not set.
func (u usage) Percent() int {
	if u.Of == 0 {
		return 0
	}

	return u.Planned * 100 / u.Of
}

// Short returns 12 of 32, or 12.
func (u usage) Short() string {
	if u.Of == 0 {
		return fmt.Sprint(u.Planned)
	}

	return fmt.Sprintf("%d of %d", u.Planned, u.Of)
}

// String returns 12 of 32 (37 %), or 12.
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

type machine struct {
	Name, Cluster, Kind, Host, Address, MAC, System string
	VIP                                             string // of control planes
	VMID, Cores, MemoryMiB, DiskGiB                 int
	GPUs                                            []string
	// Cards describes its network devices, bonds and VLANs, Disks its disks, the system's first.
	Cards, Disks []string
	Colour       int   // of its cluster
	State        State // zero in the report of a plan
}

// Kinds of machines; they are also the classes of the page's style.
const (
	kindControlPlane = "control plane"
	kindWorker       = "worker"
	kindGPUWorker    = "GPU worker"
	kindMachine      = "machine"
)

// Class returns the machine's class in the page's style.
func (m machine) Class() string { return strings.ReplaceAll(strings.ToLower(m.Kind), " ", "-") }

// Note lists the machine's GPUs and virtual IP.
func (m machine) Note() string {
	notes := slices.Clone(m.GPUs)
	if m.VIP != "" {
		notes = append(notes, "virtual IP "+m.VIP)
	}

	return strings.Join(notes, ", ")
}

// MemoryGiB returns the memory without trailing zeros.
func (m machine) MemoryGiB() string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(m.MemoryMiB)/1024), ".0")
}

func newView(p *spec.Plan) view {
	v := view{Stack: p.Stack, Protect: p.Protect, Warnings: p.Warnings, Egress: p.Egress}
	for i, c := range p.Clusters {
		v.Clusters = append(v.Clusters, newCluster(c))
		v.Clusters[i].Colour = i % colours
	}

	for _, m := range p.Members() {
		placed := newMachine(m)
		placed.Colour = max(slices.IndexFunc(v.Clusters, func(c cluster) bool { return c.Name == m.Cluster }), 0) % colours
		v.Machines = append(v.Machines, placed)
	}

	for _, h := range p.Hosts {
		v.Hosts = append(v.Hosts, newHost(p, h, v.Machines))
	}

	return v
}

// protectionOf returns what protects a machine from its host's failure, and its data from those who have its disk.
func protectionOf(n spec.Member) string {
	var list []string
	if n.Template.SecureBoot {
		list = append(list, "Secure Boot")
	}

	if n.TPM {
		list = append(list, "TPM")
	}

	if n.HA != nil {
		list = append(list, "high availability")
	}

	if n.Of != nil {
		if volumes, err := n.Volumes(n.Of.Patches); err == nil && volumes.String() != "" {
			list = append(list, "encrypted: "+volumes.String())
		}
	}

	return strings.Join(list, ", ")
}

func newMachine(n spec.Member) machine {
	m := machine{
		Name: n.Name, Cluster: n.Cluster, Kind: kindMachine, Host: n.Host, Address: "by DHCP", MAC: n.MAC,
		System: "Talos " + n.Template.Version, VMID: n.VMID, Cores: n.Cores, MemoryMiB: n.MemoryMiB,
	}
	if n.Address.IsValid() {
		m.Address = n.Address.Addr().String()
	}

	if n.AddressIPv6.IsValid() {
		m.Address += ", " + n.AddressIPv6.Addr().String()
	}

	if protection := protectionOf(n); protection != "" {
		m.System += ", " + protection
	}

	if n.Template.System != nil {
		m.System = n.Template.System.Title()
	}

	m.Cards = cardsOf(n)

	for _, d := range n.Disks() {
		m.DiskGiB += d.SizeGiB
		m.Disks = append(m.Disks, describeDisk(d, n.Datastore))
	}

	for _, g := range n.AllDevices() {
		m.GPUs = append(m.GPUs, g.Name)
	}

	switch {
	case n.Role == spec.RoleControlPlane:
		m.Kind = kindControlPlane
		if n.Of.VIP.IsValid() {
			m.VIP = n.Of.VIP.String()
		}
	case len(n.GPUs) > 0:
		m.Kind = kindGPUWorker
	case n.Cluster != "":
		m.Kind = kindWorker
	}

	return m
}

// newHost returns a host with its machines, of all machines of the plan.
func newHost(p *spec.Plan, h spec.Host, machines []machine) host {
	result := host{
		Name: h.Name, Address: h.Address.String(), Prepared: h.Prep != nil,
		Cores: usage{Of: h.Cores}, Memory: usage{Of: h.MemoryMiB / 1024},
	}
	memory, disks, users := 0, map[string]int{}, map[string]string{}

	for i, m := range p.Members() {
		if m.Host != h.Name {
			continue
		}

		result.Machines = append(result.Machines, machines[i])
		result.Cores.Planned += m.Cores
		memory += m.MemoryMiB

		for _, d := range m.Disks() {
			disks[d.Datastore] += d.SizeGiB
		}

		for _, g := range m.AllDevices() {
			users[g.Address()] = m.Name
		}
	}

	result.Memory.Planned = (memory + 1023) / 1024
	for _, datastore := range slices.Sorted(maps.Keys(disks)) {
		result.Disks = append(result.Disks, disk{Datastore: datastore, GiB: disks[datastore]})
	}

	for _, g := range h.AllDevices() {
		result.GPUs = append(result.GPUs, gpu{
			Name: g.Name, PCI: cmp.Or(g.PCI, "USB "+g.Address()), Generation: cmp.Or(g.Generation, string(g.Kind)),
			Machine: users[g.Address()],
		})
	}

	sortByVMID(result.Machines)

	return result
}
