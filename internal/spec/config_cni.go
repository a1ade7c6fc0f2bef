package spec

// CNIConfig is the CNI of a cluster. Talos installs none, and no kube-proxy.
type CNIConfig struct {
	// `cilium` = the program installs Cilium as a Helm release and waits for it; `none` = nodes wait until you install a
	// CNI that replaces kube-proxy.
	Kind string `json:"kind,omitempty" jsonschema:"default=none,enum=cilium,enum=none"`
	// The version of the chart. Default: the newest one that supports the Kubernetes version.
	Version string `json:"version,omitempty" jsonschema:"example=1.20.2"`
	// Where the chart's archive is: `oci://…`, `https://….tgz`, `file:///….tgz`, or a path. Default: where Cilium
	// publishes the version.
	Chart string `json:"chart,omitempty" jsonschema:"example=oci://registry.example.org/charts/cilium"`
	// The SHA-256 of the archive, as sha256:…; for a chart in a registry, that of its manifest works as well. Default:
	// that of Cilium's archive, if the program knows the version.
	Digest string `json:"digest,omitempty" jsonschema:"example=sha256:b2af…"`
	// Values of the chart, in addition to those that the program sets.
	Values map[string]any `json:"values,omitempty"`
	// Addresses for Services of type LoadBalancer, which the nodes announce in their own network (ARP), or to routers
	// (BGP). Default: none.
	LoadBalancer *LoadBalancerConfig `json:"loadBalancer,omitempty"`
	// Enable the Gateway API, and install its CRDs.
	GatewayAPI bool `json:"gatewayApi,omitempty" jsonschema:"default=false"`
	// The directory of the Gateway API's CRDs, as an `https://` address or a path, with the file names of its repository.
	// Default: its repository, at the version that Cilium implements.
	GatewayAPISource string `json:"gatewayApiSource,omitempty" jsonschema:"example=https://mirror.example.org/gateway-api/crds"`
	// Run Hubble, its relay and its user interface.
	Hubble bool `json:"hubble,omitempty" jsonschema:"default=false"`
}

// LoadBalancerConfig holds the addresses for Services of type LoadBalancer.
type LoadBalancerConfig struct {
	// Unused addresses, as ranges (`10.0.0.200-10.0.0.220`), networks (`10.0.0.240/28`) or single ones: of the cluster's
	// network, or with `bgp` outside of it. In a dual-stack cluster also IPv6 (`fd00:1::c8-fd00:1::dc`), without `bgp`
	// from Cilium 1.19 on.
	Addresses []string `json:"addresses" jsonschema:"required,minItems=1,example=10.0.0.200-10.0.0.220"`
	// Regular expressions for the names of the network interfaces that announce them. Default: all that Cilium uses.
	Interfaces []string `json:"interfaces,omitempty" jsonschema:"example=^ens18$"`
	// Announce the addresses to routers by BGP, instead of by ARP.
	BGP *BGPConfig `json:"bgp,omitempty"`
}

// BGPConfig is how Cilium on every node announces the addresses of Services to routers. Each router needs every node as
// a neighbour; routes are kept for two minutes while a node's agent restarts (graceful restart).
type BGPConfig struct {
	// The autonomous system number of the nodes; private ones are 64512 to 65534 and 4200000000 to 4294967294.
	LocalASN int `json:"localAsn" jsonschema:"required,minimum=1,maximum=4294967295,example=64513"`
	// The routers.
	Peers []BGPPeerConfig `json:"peers" jsonschema:"required,minItems=1"`
	// The number of hops to routers outside the nodes' network; 0 = they are directly connected.
	Multihop int `json:"multihop,omitempty" jsonschema:"default=0,minimum=0,maximum=255"`
	// How long routers keep the routes of a silent node, in seconds.
	HoldTimeSeconds int `json:"holdTimeSeconds,omitempty" jsonschema:"default=90,minimum=3,maximum=65535"`
	// The password of the sessions (TCP MD5), which can be a secret. Default: none.
	Password string `json:"password,omitempty"`
}

// BGPPeerConfig is a router.
type BGPPeerConfig struct {
	// The router's address.
	Address string `json:"address" jsonschema:"required,example=10.0.0.1"`
	// The router's autonomous system number; the nodes' own for an internal peer.
	ASN int `json:"asn" jsonschema:"required,minimum=1,maximum=4294967295,example=64512"`
}
