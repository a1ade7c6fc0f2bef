// Package preflight checks a plan against Proxmox VE and the Image Factory before anything is created, for problems
// that would otherwise fail a run half-way. It changes nothing.
package preflight

import (
	"cmp"
	"slices"
	"time"

	"talos-proxmox/internal/errorhints"
	"talos-proxmox/internal/hostfacts"
	"talos-proxmox/internal/permissions"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/vmdiff"
)

// Site is what Proxmox and the Image Factory have. Nil fields were not read or are unknown: Unknown says why.
type Site struct {
	Endpoint string
	// Identity is the user, or the token with its user, of the credentials.
	Identity string
	// LoginError is why Proxmox refuses the credentials; nothing else is known then.
	LoginError error
	// Unreachable is why Proxmox does not answer.
	Unreachable error
	Version     string // 9.1
	Rights      permissions.Granted
	// TokenExpiry is when the token expires; zero = never, or unknown. ReadAt is when that was read.
	TokenExpiry, ReadAt time.Time
	Hosts               map[string]*Host
	// NoQuorum: Proxmox' cluster has no quorum.
	NoQuorum bool
	Machines []proxmoxapi.Listed
	// Descriptions of conflicting machines, by VMID.
	Descriptions map[int]string
	// Guests are the guests that are not the stack's; nil if the plan has no new addresses.
	Guests []Guest
	// Mappings are the comments of PCI and USB mappings, by path: /mapping/usb/zigbee.
	Mappings map[string]string
	Pools    []string
	// Groups are user groups, Roles the privileges of roles by name.
	Groups []string
	Roles  map[string][]string
	// Autoscalers are the rights of autoscalers' users.
	Autoscalers map[string]permissions.Granted
	// ForeignVolumes are the VMIDs of other machines with volumes on datastores of storage classes, by datastore.
	ForeignVolumes map[string][]int
	// LostVolumes are the volumes that the deletion of a machine takes beyond its own disks, by the machine's name.
	LostVolumes map[string][]string
	// Firewall reports whether the firewall of the data centre is on; nil = unknown, or the plan does not need it.
	// SecurityGroups are those of the firewall.
	Firewall       *bool
	SecurityGroups []proxmoxapi.SecurityGroup
	// Releases are the Image Factory's Talos versions, Extensions those of each planned version.
	Factory    string
	Releases   []string
	Extensions map[string][]string
	// APIs are the endpoints of clusters' Kubernetes APIs that are not the address of a machine of theirs, by cluster.
	APIs map[string]API
	// Unknown lists what could not be read, and why.
	Unknown []string
}

// Host is a host as Proxmox' cluster reports it.
type Host struct {
	Status   string // online, offline or unknown
	Cores    int    // 0 = unknown
	Storages []hostfacts.Storage
	Bridges  []Bridge
}

// Bridge is a Linux bridge, an OVS bridge or a VNet of a host.
type Bridge struct {
	Name string `json:"iface"`
	Type string `json:"type"`
	// VLANAware applies to bridges, VNetAware to VNets: 1 = it accepts VLANs.
	VLANAware int `json:"bridge_vlan_aware"`
	VNetAware int `json:"vlanaware"`
	// Ports of a Linux bridge.
	Ports string `json:"bridge_ports"`
}

// Stack is the stack that is checked, and what it has created already.
type Stack struct {
	Project, Name string
	// ID is the stack's id in its markers; empty = it has none yet.
	ID string
	// Empty: the state has no machine and no cluster.
	Empty bool
	// Machines are its VMs by VMID, Mappings the paths of its PCI and USB mappings.
	Machines map[int]vmdiff.Machine
	Mappings []string
	// Settings are [vmdiff.CreationSettings] of the last run.
	Settings map[string]string
	// Image returns the name of a template's image. Downloaded reports whether its datastore has the image, Built whether
	// the template exists.
	Image             func(spec.Template) string
	Downloaded, Built func(spec.Template) bool
}

// Check checks a plan against the site.
func Check(plan *spec.Plan, stack Stack, site *Site) problem.List {
	c := &checker{plan: plan, stack: stack, site: site, planned: newPlanned(plan, stack)}
	if site.LoginError != nil {
		c.reportLoginError()

		return c.found
	}

	if site.Unreachable != nil {
		advice, known := errorhints.Advice(errorhints.Subject{Host: site.Endpoint}, "read", site.Unreachable.Error())
		if known {
			advice = ". What to do: " + advice
		}

		c.warn("", "", nil, "Proxmox at %s does not answer, so that rights, hosts, datastores, bridges and VMIDs "+
			"are not compared with the plan: %s%s", site.Endpoint, site.Unreachable, advice)
	}

	for _, rule := range []func(){
		c.checkVersion, c.checkRights, c.checkToken, c.checkHosts, c.checkQuorum, c.checkStorages, c.checkBridges,
		c.checkHA, c.checkCores, c.checkVMIDs, c.checkNames, c.checkAddresses, c.checkMappings, c.checkPools, c.checkAccounts,
		c.checkAutoscalers, c.checkStorageClasses, c.checkForeignVolumes, c.checkCSIVMID, c.checkLostVolumes, c.checkFirewall,
		c.checkReleases, c.checkAPIs,
	} {
		rule()
	}

	for _, text := range site.Unknown {
		c.found.Warn("", nil, "%s", text)
	}

	return c.found
}

type checker struct {
	plan    *spec.Plan
	stack   Stack
	site    *Site
	planned planned
	found   problem.List
}

// add adds a finding about a host, or about none if empty. Equal findings are added once.
func (c *checker) add(
	severity problem.Severity, host, path string, value any, format string, arguments ...any,
) {
	p := problem.New(path, value, format, arguments...)
	p.Severity, p.Heading = severity, host

	if !slices.Contains(c.found, p) {
		c.found = append(c.found, p)
	}
}

func (c *checker) problem(host, path string, value any, format string, arguments ...any) {
	c.add(problem.Error, host, path, value, format, arguments...)
}

func (c *checker) warn(host, path string, value any, format string, arguments ...any) {
	c.add(problem.Warning, host, path, value, format, arguments...)
}

func (c *checker) fine(host, format string, arguments ...any) {
	c.add(problem.Fine, host, "", nil, format, arguments...)
}

// CheckStorages checks a plan against the storages in a host's facts, for runs that do not read Proxmox' API. It
// returns no findings of severity Fine.
func CheckStorages(plan *spec.Plan, stack Stack, name string, storages []hostfacts.Storage) problem.List {
	c := &checker{plan: plan, stack: stack, planned: newPlanned(plan, stack)}
	c.site = &Site{Hosts: map[string]*Host{name: {Storages: storages}}}
	c.checkStorages()

	return slices.DeleteFunc(c.found, func(p problem.Problem) bool { return p.Severity == problem.Fine })
}

// severity returns Error for what is to be created, and Warning for what exists.
func severity(new bool) problem.Severity {
	if new {
		return problem.Error
	}

	return problem.Warning
}

// online reports whether a host is known and not offline.
func (s *Site) online(name string) bool {
	h := s.Hosts[name]

	return h != nil && h.Status != proxmoxapi.HostOffline
}

// HasStorages reports whether a host's storages are known.
func (s *Site) HasStorages(host string) bool { return s.host(host).Storages != nil }

func (s *Site) host(name string) *Host { return cmp.Or(s.Hosts[name], &Host{}) }
