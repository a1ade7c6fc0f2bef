// Package site compares a plan with what Proxmox VE and the Image Factory say, before anything is made: what would
// otherwise end a run half-way. Nothing is changed.
package site

import (
	"cmp"
	"fmt"
	"slices"

	"talos-proxmox/internal/host"
	"talos-proxmox/internal/permissions"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/running"
	"talos-proxmox/internal/spec"
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
	Hosts   map[string]*Host
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
	// Releases are the Talos versions of the Image Factory, Extensions those of each version that was asked for.
	Factory    string
	Releases   []string
	Extensions map[string][]string
	// Unasked are questions without an answer, each with why.
	Unasked []string
}

// Host is what Proxmox' cluster says of a host.
type Host struct {
	Status    string // online, offline or unknown
	Cores     int    // 0 = not known
	MemoryMiB int
	Storages  []Storage
	Bridges   []Bridge
}

// Storage is a datastore as a host has it. Enabled is 0 where it is disabled, or limited to other hosts.
type Storage struct {
	host.Storage

	Enabled int `json:"enabled"`
	Shared  int `json:"shared"`
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
	// Rehearsal says that the site is not the stack's own: machines of other stacks are not in its way there.
	Rehearsal bool
	// Machines are its VMs by VMID, Mappings the names of its PCI mappings.
	Machines map[int]running.Machine
	Mappings []string
	// Image names a template's image; Downloaded says whether its datastore has it, Built whether the template is there.
	Image             func(spec.Template) string
	Downloaded, Built func(spec.Template) bool
}

// Kind says what a finding means.
type Kind int

// The kinds of findings.
const (
	Fine Kind = iota
	Warning
	Problem
)

// Finding is one thing that is fine or is not, at a host or (empty) at none in particular.
type Finding struct {
	Kind Kind
	Host string
	spec.Problem
}

// Findings are a judgement.
type Findings []Finding

// Problems are what is wrong.
func (f Findings) Problems() spec.Problems {
	var problems spec.Problems

	for _, one := range f {
		if one.Kind == Problem {
			problems = append(problems, one.Problem)
		}
	}

	return problems
}

// Warnings do not prevent the plan.
func (f Findings) Warnings() []string {
	var warnings []string

	for _, one := range f {
		if one.Kind == Warning {
			warnings = append(warnings, one.String())
		}
	}

	return warnings
}

// String is the finding in one line.
func (f Finding) String() string {
	if f.Path == "" {
		return f.Message
	}

	return f.Problem.String()
}

// Judge compares a plan with the site.
func Judge(plan *spec.Plan, stack Stack, site *Site) Findings {
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
		j.version, j.rights, j.hosts, j.quorum, j.storages, j.bridges, j.cores,
		j.vmids, j.names, j.mappings, j.pools, j.accounts, j.classes, j.releases,
	} {
		rule()
	}

	for _, text := range site.Unasked {
		j.found = append(j.found, Finding{Kind: Warning, Problem: spec.Problem{Message: text}})
	}

	return j.found
}

type judge struct {
	plan  *spec.Plan
	stack Stack
	site  *Site
	work  work
	found Findings
}

// add notes a finding, once for a path and a text.
func (j *judge) add(kind Kind, host, path string, value any, format string, arguments ...any) {
	f := Finding{Kind: kind, Host: host, Problem: spec.Problem{Path: path, Message: fmt.Sprintf(format, arguments...)}}
	if value != nil {
		f.Value = fmt.Sprintf("%q", value)
	}

	if !slices.Contains(j.found, f) {
		j.found = append(j.found, f)
	}
}

func (j *judge) problem(host, path string, value any, format string, arguments ...any) {
	j.add(Problem, host, path, value, format, arguments...)
}

func (j *judge) warn(host, path string, value any, format string, arguments ...any) {
	j.add(Warning, host, path, value, format, arguments...)
}

func (j *judge) fine(host, format string, arguments ...any) {
	j.add(Fine, host, "", nil, format, arguments...)
}

// severity is a problem for what is still to be made, and a warning for what is there.
func severity(new bool) Kind {
	if new {
		return Problem
	}

	return Warning
}

// online says whether a host can be asked, as far as is known.
func (s *Site) online(name string) bool {
	h := s.Hosts[name]

	return h != nil && h.Status != statusOffline
}

// Tells says whether a host's storages are known.
func (s *Site) Tells(host string) bool { return s.host(host).Storages != nil }

func (s *Site) host(name string) *Host { return cmp.Or(s.Hosts[name], &Host{}) }
