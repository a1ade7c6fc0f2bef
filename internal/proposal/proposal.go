// Package proposal proposes a stack by what a Proxmox cluster has: [Read] takes the inventory, [Propose] asks what
// cannot be known and decides the rest, [Stack.File] writes it down.
package proposal

import (
	"fmt"
	"net/netip"
	"slices"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
)

// Stack is a proposed stack.
type Stack struct {
	Name, Cluster  string
	Endpoint       string
	Release        string // of Proxmox VE; empty = unknown
	ProxmoxCluster string // fingerprint; empty = unknown
	Gaps           []string

	Hosts []StackHost
	// Ranges are the VMIDs of roles whose default range has machines.
	Ranges []Range

	Talos, Kubernetes         string
	Source                    spec.Source
	Datastore, ImageDatastore string

	Network       Network
	ControlPlanes Pool
	Workers       *Pool // nil = none
	GPUWorkers    []Pool

	// Reasons are the decisions that are not obvious, in the order of the file.
	Reasons []Reason
}

// StackHost is a host of the stack.
type StackHost struct {
	Name    string
	Number  int // 0 = that at the end of its name
	Address netip.Addr
	Title   string // its size
	// Cores and MemoryMiB are for machines of the stack; 0 = unknown. Memory says how the memory was calculated.
	Cores, MemoryMiB int
	Memory           string
	GPUs             []StackGPU
	// NeedsSSH: the program works in its shell.
	NeedsSSH bool
	Key      HostKey
}

// StackGPU is a GPU with the name that its machines request it by.
type StackGPU struct {
	GPU

	Label string
}

// Range is a range of VMIDs of a role.
type Range struct {
	Role        string
	First, Last int
}

// Network is the network of the cluster's machines.
type Network struct {
	Bridge  string
	VLAN    int
	CIDR    netip.Prefix
	Gateway netip.Addr // invalid = none
	DNS     []netip.Addr
	VIP     netip.Addr // invalid = none
	// First and Last are the addresses that no DHCP server gives out.
	First, Last netip.Addr
}

// Pool is a pool of machines.
type Pool struct {
	Name, GPU    string
	Count        int
	Cores        int
	MemoryMiB    int
	DiskGiB      int
	FirstAddress netip.Addr
}

// Reason is a decision and why it was made.
type Reason struct{ Subject, Value, Why string }

// Options are what the caller of [Propose] has decided, and how the rest is asked.
type Options struct {
	Stack string
	// Given are answers by the flag of their question.
	Given map[string]string
	// Ask asks a question, and returns an empty text for the default; nil = all defaults are taken.
	Ask func(Question) (string, error)
	// AcceptedKeys are fingerprints of the hosts' SSH keys that the caller has compared.
	AcceptedKeys []string
	// Confirm asks whether a host's SSH key is the right one; nil = only the accepted ones are.
	Confirm func(host string, key HostKey) (bool, error)
	// FetchKey fetches a host's SSH key.
	FetchKey func(address netip.Addr) (HostKey, error)
}

// planner collects the decisions.
type planner struct {
	Options

	inventory *Inventory
	stack     *Stack
	hosts     []Host // those of the stack
	problems  problem.List
	err       error // no answer can be read any more
}

// Propose proposes a stack. The error is a [problem.List] with everything that has no default or does not fit, by flag.
func Propose(inventory *Inventory, o Options) (*Stack, error) {
	p := &planner{Options: o, inventory: inventory, stack: &Stack{
		Name: o.Stack, Endpoint: inventory.Endpoint, Release: inventory.Release, ProxmoxCluster: inventory.Cluster,
		Gaps: slices.Clone(inventory.Gaps),
	}}

	for _, step := range []func(){
		p.chooseHosts, p.chooseVersions, p.chooseCluster, p.chooseStorages, p.chooseGPUs, p.choosePools, p.chooseNetwork,
		p.chooseVMIDs, p.chooseKeys,
	} {
		if step(); p.err != nil {
			return nil, p.err
		}

		if len(p.hosts) == 0 { // nothing else can be decided
			break
		}
	}

	if len(p.problems) > 0 {
		return nil, p.problems
	}

	return p.stack, nil
}

// decide records a decision for the summary and the stack file.
func (p *planner) decide(subject, value, format string, arguments ...any) {
	p.stack.Reasons = append(p.stack.Reasons, Reason{subject, value, fmt.Sprintf(format, arguments...)})
}

// Why returns the reason of a decision; empty without one.
func (s *Stack) Why(subject string) string {
	for _, r := range s.Reasons {
		if r.Subject == subject {
			return r.Why
		}
	}

	return ""
}

// chooseVersions takes the newest supported Talos, and the Kubernetes that it came with.
func (p *planner) chooseVersions() {
	for _, release := range talos.Releases() {
		if release.Support == talos.Supported { // the oldest is first
			p.stack.Talos, p.stack.Kubernetes = release.Newest, release.DefaultKubernetes
		}
	}

	p.decide("Talos", p.stack.Talos, "the newest that this program supports")
}

// chooseCluster asks for the cluster's name.
func (p *planner) chooseCluster() {
	p.ask(Question{
		Flag: "cluster", Text: "Name of the cluster, which stays as long as its machines", Default: p.Stack,
	}, func(text string) error {
		p.stack.Cluster = text // the check of the file knows its form

		return nil
	})
}
