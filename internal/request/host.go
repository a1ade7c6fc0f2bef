package request

import "encoding/json"

// Shell is how a Proxmox host's shell is reached.
type Shell struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	Port    int    `json:"port"` // 0 = 22
	User    string `json:"user"` // empty = root
	// HostKey is the host's public key in authorized_keys form; without it any key must be accepted.
	HostKey          string `json:"hostKey,omitempty"`
	AcceptAnyHostKey bool   `json:"acceptAnyHostKey,omitempty"`
}

// Host is a host with the script that runs in its shell.
type Host struct {
	Shell

	Script string `json:"script"`
}

// Facts is what `talosops facts` reads.
type Facts struct {
	PrivateKey  string `json:"privateKey"` // secret; empty = the SSH agent
	DialTimeout string `json:"dialTimeout"`
	StepTimeout string `json:"stepTimeout"`
	Hosts       []Host `json:"hosts"`
}

// Answers are what `talosops facts` prints.
type Answers struct {
	Hosts []Answer `json:"hosts"`
}

// Answer is what one host answered: facts, or an error.
type Answer struct {
	Name  string          `json:"name"`
	Facts json.RawMessage `json:"facts,omitempty"`
	Error string          `json:"error,omitempty"`
}

// Settle is what `talosops settle` reads: which host, and what must be true of it.
type Settle struct {
	PrivateKey    string `json:"privateKey,omitempty"` // secret; empty = the SSH agent
	DialTimeout   string `json:"dialTimeout"`
	StepTimeout   string `json:"stepTimeout"`
	WaitTimeout   string `json:"waitTimeout"`
	RebootTimeout string `json:"rebootTimeout"`
	// has the command run again when the host was changed; talosops does not read it
	Revision string `json:"revision"`
	Host     Host   `json:"host"`
	Reboot   bool   `json:"reboot,omitempty"`
	Required bool   `json:"required,omitempty"`
	// Prepared says that the host's IOMMU is prepared by the stack.
	Prepared bool `json:"prepared,omitempty"`
	// Machines are the PCI addresses of the GPUs of each machine.
	Machines [][]string `json:"machines,omitempty"`
}
