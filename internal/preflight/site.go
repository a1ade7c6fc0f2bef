// Package preflight compares a plan with what Proxmox VE and the Image Factory say, before anything is made: what would
// otherwise end a run half-way. Nothing is changed.
package preflight

import (
	"cmp"
	"slices"
	"time"

	"talos-proxmox/internal/hostfacts"
	"talos-proxmox/internal/permissions"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/vmdiff"
)

// Site is what was answered. What is nil was not asked, or is not known: Unasked says why.
type Site struct {
	Endpoint string
	// Identity is whom the credentials stand for: a user, or a token with its user.
	Identity string
	// Refused is why Proxmox lets the credentials in for nothing; nothing else is known then.
	Refused error
	// Silent is why there is no answer at all.
	Silent  error
	Version string // 9.1
	Rights  permissions.Granted
	// TokenEnds is when Proxmox takes the token no more; zero = never, or not known. Asked is when that was asked.
	TokenEnds, Asked time.Time
	Hosts            map[string]*Host
	// NoQuorum says that Proxmox' cluster has none.
	NoQuorum bool
	Machines []proxmoxapi.Listed
	// Owners are the descriptions of machines in the way, by VMID.
	Owners map[int]string
	// Mappings are the comments of PCI mappings by their names.
	Mappings map[string]string
	Pools    []string
	// Groups are those of users, Roles the privileges of roles by name.
	Groups []string
	Roles  map[string][]string
	// Foreign are machines that are not the stack's, with volumes on datastores of storage classes, by datastore.
	Foreign map[string][]int
	// Releases are the Talos versions of the Image Factory, Extensions those of each version that was asked for.
	Factory    string
	Releases   []string
	Extensions map[string][]string
	// Unasked are questions without an answer, each with why.
	Unasked []string
}

// Host is what Proxmox' cluster says of a host.
type Host struct {
	Status   string // online, offline or unknown
	Cores    int    // 0 = not known
	Storages []hostfacts.Storage
	Bridges  []Bridge
}

// Bridge is a Linux bridge, an OVS bridge or a VNet of a host.
type Bridge struct {
	Name string `json:"iface"`
	Type string `json:"type"`
	// VLANAware is set of a bridge, VNetAware of a VNet: 1 = it takes VLANs.
	VLANAware int `json:"bridge_vlan_aware"`
	VNetAware int `json:"vlanaware"`
	// Ports are a Linux bridge's.
	Ports string `json:"bridge_ports"`
}

// Stack is what asks: its names, and what it has made already.
type Stack struct {
	Project, Name string
	// ID is its own, in the markers of what it makes; empty = it has none yet.
	ID string
	// Blank says that its state has no machine and no cluster.
	Blank bool
	// Machines are its VMs by VMID, Mappings the names of its PCI mappings.
	Machines map[int]vmdiff.Machine
	Mappings []string
	// Image names a template's image; Downloaded says whether its datastore has it, Built whether the template is there.
	Image             func(spec.Template) string
	Downloaded, Built func(spec.Template) bool
}

// Judge compares a plan with the site.
func Judge(plan *spec.Plan, stack Stack, site *Site) problem.List {
	j := &judge{plan: plan, stack: stack, site: site, work: newWork(plan, stack)}
	if site.Refused != nil {
		j.refused()

		return j.found
	}

	if site.Silent != nil {
		j.warn("", "", nil, "Proxmox at %s does not answer, so that rights, hosts, datastores, bridges and VMIDs "+
			"are not compared with the plan: %s", site.Endpoint, site.Silent)
	}

	for _, rule := range []func(){
		j.version, j.rights, j.token, j.hosts, j.quorum, j.storages, j.bridges, j.cores,
		j.vmids, j.names, j.mappings, j.pools, j.accounts, j.classes, j.foreign, j.releases,
	} {
		rule()
	}

	for _, text := range site.Unasked {
		j.found.Warn("", nil, "%s", text)
	}

	return j.found
}

type judge struct {
	plan  *spec.Plan
	stack Stack
	site  *Site
	work  work
	found problem.List
}

// add notes what is found at a host, or (empty) at none in particular; once for a path and a text.
func (j *judge) add(
	severity problem.Severity, host, path string, value any, format string, arguments ...any,
) {
	p := problem.New(path, value, format, arguments...)
	p.Severity, p.Of = severity, host

	if !slices.Contains(j.found, p) {
		j.found = append(j.found, p)
	}
}

func (j *judge) problem(host, path string, value any, format string, arguments ...any) {
	j.add(problem.Error, host, path, value, format, arguments...)
}

func (j *judge) warn(host, path string, value any, format string, arguments ...any) {
	j.add(problem.Warning, host, path, value, format, arguments...)
}

func (j *judge) fine(host, format string, arguments ...any) {
	j.add(problem.Fine, host, "", nil, format, arguments...)
}

// JudgeStorages compares a plan with the storages that a host itself says it has, where Proxmox' API was not asked.
func JudgeStorages(plan *spec.Plan, stack Stack, name string, storages []hostfacts.Storage) problem.List {
	j := &judge{plan: plan, stack: stack, work: newWork(plan, stack)}
	j.site = &Site{Hosts: map[string]*Host{name: {Storages: storages}}}
	j.storages()

	return slices.DeleteFunc(j.found, func(p problem.Problem) bool { return p.Severity == problem.Fine })
}

// severity is a problem for what is still to be made, and a warning for what is there.
func severity(new bool) problem.Severity {
	if new {
		return problem.Error
	}

	return problem.Warning
}

// online says whether a host can be asked, as far as is known.
func (s *Site) online(name string) bool {
	h := s.Hosts[name]

	return h != nil && h.Status != statusOffline
}

// Tells says whether a host's storages are known.
func (s *Site) Tells(host string) bool { return s.host(host).Storages != nil }

func (s *Site) host(name string) *Host { return cmp.Or(s.Hosts[name], &Host{}) }
