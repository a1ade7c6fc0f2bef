package spec

// NICConfig is an additional network device of every machine of a pool.
type NICConfig struct {
	// The Proxmox bridge.
	Bridge string `json:"bridge" jsonschema:"required,example=vmbr1"`
	// The VLAN tag that Proxmox sets; 0 = untagged.
	VLAN int `json:"vlan,omitempty" jsonschema:"default=0,minimum=0,maximum=4094"`
	LinkConfig
	// The name of one of the pool's `bonds`, which the device is in; addresses, routes and VLANs are then the bond's. Only
	// for Talos machines, as `routeMetric`, `routes` and `vlans`.
	Bond string `json:"bond,omitempty" jsonschema:"example=bond0"`
	// VLANs that the machines tag on the device. Proxmox must not tag it.
	VLANs []VLANConfig `json:"vlans,omitempty"`
}

// LinkConfig is the addressing of an additional network device, a bond or a VLAN.
type LinkConfig struct {
	// The MTU in bytes; 0 = for a device the bridge's, for a bond the smallest of its devices, for a VLAN that of the
	// device or bond.
	MTU int `json:"mtu,omitempty" jsonschema:"default=0,minimum=0,maximum=65520"`
	// The IPv4 network of static addresses. Default: none.
	CIDR string `json:"cidr,omitempty" jsonschema:"example=10.1.0.0/24"`
	// The address of the first machine in `cidr`; the others follow. Default: as for the pool's `firstAddress`.
	FirstAddress string `json:"firstAddress,omitempty"`
	// Get the address by DHCP. `false` without `cidr` leaves it without one, for VLANs alone or for a bridge that a patch
	// makes; only for Talos machines. Default: true without `cidr`.
	DHCP *bool `json:"dhcp,omitempty"`
	// The metric of routes that DHCP brings; of two routes to the same network, machines use that with the lower one. 0 =
	// Talos' own, 1024.
	RouteMetric int `json:"routeMetric,omitempty" jsonschema:"default=0,minimum=0,maximum=65535"`
	// Routes.
	Routes []RouteConfig `json:"routes,omitempty"`
}

// BondConfig is a bond of additional network devices, of every machine of a pool. The first network device cannot be in
// one.
type BondConfig struct {
	// The name of the bond in the machines.
	Name string `json:"name" jsonschema:"required,example=bond0"`
	// How the devices are used. `802.3ad` needs bridges of Open vSwitch that forward LACP; those of Linux do not.
	Mode string `json:"mode,omitempty" jsonschema:"default=active-backup,enum=active-backup,enum=balance-rr,enum=balance-xor,enum=broadcast,enum=802.3ad,enum=balance-tlb,enum=balance-alb"`
	// How often the state of the devices is checked, in milliseconds.
	MIIMon int `json:"miimon,omitempty" jsonschema:"default=100,minimum=10,maximum=60000"`
	// What chooses the device for a packet, with `balance-xor`, `balance-tlb` and `802.3ad`. Default: Linux' own,
	// `layer2`.
	XmitHashPolicy string `json:"xmitHashPolicy,omitempty" jsonschema:"enum=layer2,enum=layer2+3,enum=layer3+4,enum=encap2+3,enum=encap3+4"`
	// How often the switch is asked to send LACP packets, with `802.3ad`: `slow` = every 30 seconds, `fast` = every
	// second. Default: Linux' own, `slow`.
	LACPRate string `json:"lacpRate,omitempty" jsonschema:"enum=slow,enum=fast"`
	LinkConfig
	// VLANs that the machines tag on the bond. Proxmox must not tag its devices.
	VLANs []VLANConfig `json:"vlans,omitempty"`
}

// VLANConfig is a VLAN that the machines of a pool tag themselves.
type VLANConfig struct {
	// The tag.
	ID int `json:"id" jsonschema:"required,minimum=1,maximum=4094,example=30"`
	LinkConfig
}

// RouteConfig is a route over a network device, bond or VLAN.
type RouteConfig struct {
	// The network that it leads to; 0.0.0.0/0, which needs a `metric`, is a second default route.
	Destination string `json:"destination" jsonschema:"required,example=10.50.0.0/16"`
	// The router's address, in the network of the device, bond or VLAN.
	Gateway string `json:"gateway" jsonschema:"required,example=10.1.0.1"`
	// The metric; of two routes to the same network, machines use that with the lower one. 0 = Talos' own, 1024.
	Metric int `json:"metric,omitempty" jsonschema:"default=0,minimum=0,maximum=65535"`
}

// StaticHostConfig are names that machines resolve without DNS.
type StaticHostConfig struct {
	// The address.
	Address string `json:"address" jsonschema:"required,example=10.0.0.4"`
	// The names.
	Names []string `json:"names" jsonschema:"required,minItems=1,example=nas.example.org"`
}
