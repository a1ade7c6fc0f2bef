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
	// Addresses for Services of type LoadBalancer, which the nodes announce in their own network (ARP). Default: none.
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
	// Unused addresses of the cluster's network, as ranges (`10.0.0.200-10.0.0.220`), networks (`10.0.0.240/28`) or
	// single ones; in a dual-stack cluster also of its IPv6 network (`fd00:1::c8-fd00:1::dc`), from Cilium 1.19 on.
	Addresses []string `json:"addresses" jsonschema:"required,minItems=1,example=10.0.0.200-10.0.0.220"`
	// Regular expressions for the names of the network interfaces that announce them. Default: all that Cilium uses.
	Interfaces []string `json:"interfaces,omitempty" jsonschema:"example=^ens18$"`
}
