package request

import (
	"encoding/json"
	"net/netip"
)

// Shell is the SSH connection to a Proxmox host.
type Shell struct {
	Name    string     `json:"name"`
	Address netip.Addr `json:"address"`
	Port    int        `json:"port"` // 0 = 22
	User    string     `json:"user"` // empty = root
	// HostKey is the host's public key in authorized_keys format; required unless AcceptAnyHostKey is set.
	HostKey          string `json:"hostKey,omitempty"`
	AcceptAnyHostKey bool   `json:"acceptAnyHostKey,omitempty"`
}

// Host is a host and how it is prepared.
type Host struct {
	Shell

	// Parameters are the assignments that precede the host script, which talosops has itself: in a request it would be
	// kept in states, 45 KB for each host and step.
	Parameters string `json:"parameters"`
}

// Facts is the request of `talosops facts`.
type Facts struct {
	PrivateKey  string `json:"privateKey"` // secret; empty = the SSH agent
	DialTimeout string `json:"dialTimeout"`
	StepTimeout string `json:"stepTimeout"`
	Hosts       []Host `json:"hosts"`
}

// FactsResult are the result of `talosops facts`.
type FactsResult struct {
	Hosts []HostFacts `json:"hosts"`
}

// HostFacts is the answer of one host: facts, or an error.
type HostFacts struct {
	Name  string          `json:"name"`
	Facts json.RawMessage `json:"facts,omitempty"`
	Error string          `json:"error,omitempty"`
}

// Settle is the request of `talosops settle`: a host and what must be true of it.
type Settle struct {
	PrivateKey    string `json:"privateKey,omitempty"` // secret; empty = the SSH agent
	DialTimeout   string `json:"dialTimeout"`
	StepTimeout   string `json:"stepTimeout"`
	WaitTimeout   string `json:"waitTimeout"`
	RebootTimeout string `json:"rebootTimeout"`
	// Revision makes the command run again after the host was changed; talosops does not read it.
	Revision string `json:"revision"`
	Host     Host   `json:"host"`
	Reboot   bool   `json:"reboot,omitempty"`
	Required bool   `json:"required,omitempty"`
	// Prepared reports whether the stack prepares the host's IOMMU.
	Prepared bool `json:"prepared,omitempty"`
	// Machines are the PCI addresses of each machine's GPUs and other devices.
	Machines [][]string `json:"machines,omitempty"`
	// Devices are the kinds of the devices that are no GPUs of NVIDIA, by PCI address.
	Devices map[string]string `json:"devices,omitempty"`
}
