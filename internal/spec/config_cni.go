package spec

// CNIConfig says who brings a cluster's pods their network. Talos is told to bring none, and no kube-proxy.
type CNIConfig struct {
	// `cilium` = the program installs Cilium as a Helm release and waits for it; `none` = nodes wait until you install a
	// CNI that replaces kube-proxy.
	Kind string `json:"kind,omitempty" jsonschema:"default=none,enum=cilium,enum=none"`
	// The version of the chart. Default: the newest one that runs on the Kubernetes version.
	Version string `json:"version,omitempty" jsonschema:"example=1.20.2"`
	// Where the chart's archive is: `oci://…`, `https://….tgz`, `file:///….tgz`, or a path. Default: where Cilium
	// publishes the version.
	Chart string `json:"chart,omitempty" jsonschema:"example=oci://registry.example.org/charts/cilium"`
	// The SHA-256 of the archive, as sha256:…; of a chart in a registry its manifest's will do as well. Default: that of
	// the archive that Cilium publishes, where the program knows it.
	Digest string `json:"digest,omitempty" jsonschema:"example=sha256:b2af…"`
	// Values of the chart beyond those that the program sets.
	Values map[string]any `json:"values,omitempty"`
	// Addresses for Services of type LoadBalancer, which the nodes answer for in their own network (ARP). Default: none.
	LoadBalancer *LoadBalancerConfig `json:"loadBalancer,omitempty"`
	// Serve Gateways: the definitions of the Gateway API come before the release.
	GatewayAPI bool `json:"gatewayApi,omitempty" jsonschema:"default=false"`
	// The folder of the Gateway API's definitions, as an `https://` address or a path, with the file names of its
	// repository. Default: its repository at the tag that the version of Cilium implements.
	GatewayAPISource string `json:"gatewayApiSource,omitempty" jsonschema:"example=https://mirror.example.org/gateway-api/crds"`
	// Run Hubble, its relay and its user interface.
	Hubble bool `json:"hubble,omitempty" jsonschema:"default=false"`
}

// LoadBalancerConfig holds the addresses for Services of type LoadBalancer.
type LoadBalancerConfig struct {
	// Addresses of the cluster's network that nothing else has, as ranges (`10.0.0.200-10.0.0.220`), networks
	// (`10.0.0.240/28`) or single ones.
	Addresses []string `json:"addresses" jsonschema:"required,minItems=1,example=10.0.0.200-10.0.0.220"`
	// Regular expressions for the names of the network cards that answer for them. Default: all that Cilium serves.
	Interfaces []string `json:"interfaces,omitempty" jsonschema:"example=^ens18$"`
}
