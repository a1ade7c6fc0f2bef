package spec

// MachinesConfig is a pool of plain machines, named `<pool>-<n>`, which belong to no cluster and run a system other
// than Talos.
type MachinesConfig struct {
	// The pool's name, unique in the stack; the names of its machines begin with it. It cannot change while they run.
	Name string `json:"name" jsonschema:"required,example=web"`
	// How many; 0 keeps the pool without machines.
	Count int `json:"count,omitempty" jsonschema:"default=1,minimum=0,maximum=1000"`
	// The class of the machines' template, of a system other than Talos. A change affects new machines only.
	Template string `json:"template" jsonschema:"required,example=debian"`
	// How machines are made from their template: `linked` clones share the template's disk and must stay on its
	// datastore.
	Clone string `json:"clone,omitempty" jsonschema:"default=full,enum=full,enum=linked"`
	// How machines without a pinned host are placed: `spread` = onto the listed host with the fewest machines of the
	// pool; `roundRobin` = by number along the list of hosts; `explicit` = every machine needs its host under `nodes`.
	Placement string `json:"placement,omitempty" jsonschema:"default=spread,enum=spread,enum=roundRobin,enum=explicit"`
	// The user that cloud-init creates at the first start. Default: the template's, otherwise the default of the system's
	// images, such as debian.
	User string `json:"user,omitempty" jsonschema:"example=ops"`
	// The public keys that the user logs in with, as `authorized_keys` has them. Default: the template's.
	SSHKeys []string `json:"sshKeys,omitempty"`
	// The user's password, or its hash as crypt(5) writes it; store it encrypted:
	// [machines.md](machines.md#the-password). Default: none, the user logs in with a key.
	Password string `json:"password,omitempty"`
	// Protect the machines against deletion, in Proxmox as well. To delete them, first run `up` with `false`.
	Protect bool `json:"protect,omitempty" jsonschema:"default=false"`
	// Whether a backup job of Proxmox must include the machines: previews and `talos-proxmox check` name those that none
	// includes ([recovery.md](recovery.md#plain-machines)).
	Backup bool `json:"backup,omitempty" jsonschema:"default=false"`
	// The network of the machines' first network devices.
	Network MachineNetworkConfig `json:"network,omitempty"`
	VMPoolConfig
	// Settings of single machines, by number (`"2"`) or name (`web-2`).
	Nodes map[string]VMConfig `json:"nodes,omitempty"`
}

// MachineNetworkConfig is the network of plain machines.
type MachineNetworkConfig struct {
	// The IPv4 network; needed unless addresses come by DHCP.
	CIDR string `json:"cidr,omitempty" jsonschema:"example=10.0.0.0/24"`
	// The router's address. Default: none; machines can reach their own network only.
	Gateway string `json:"gateway,omitempty" jsonschema:"example=10.0.0.1"`
	// The IPv6 network beside it, for static addresses. Default: none.
	IPv6 *IPv6NetworkConfig `json:"ipv6,omitempty"`
	// The Proxmox bridge.
	Bridge string `json:"bridge,omitempty" jsonschema:"default=vmbr0"`
	// The VLAN tag that Proxmox sets; 0 = untagged.
	VLAN int `json:"vlan,omitempty" jsonschema:"default=0,minimum=0,maximum=4094"`
	// The MTU in bytes; 0 = the bridge's.
	MTU int `json:"mtu,omitempty" jsonschema:"default=0,minimum=0,maximum=65520"`
	// Name servers. Default: those of the Proxmox host that a machine starts on.
	DNS []string `json:"dns,omitempty" jsonschema:"example=1.1.1.1"`
	// The DNS search domain, which is also the domain of the machines' host names. Default: the Proxmox host's.
	SearchDomain string `json:"searchDomain,omitempty" jsonschema:"example=example.org"`
	// How machines get their address: `static`, or `dhcp`; then the guest agent reports it.
	Addressing string `json:"addressing,omitempty" jsonschema:"default=static,enum=static,enum=dhcp"`
}
