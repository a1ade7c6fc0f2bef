package components

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/talos"
)

// TalosClusterArgs describe a cluster. Names, addresses and versions are plain values: configurations, certificates and
// the order of machines are derived from them, and checked before anything is registered.
type TalosClusterArgs struct {
	// The cluster's name in kubeconfig and talosconfig. Default: the resource's name.
	Name string `pulumi:"name,optional"`
	// The URL of the Kubernetes API in the kubeconfig and machine configurations; its host may be a DNS name or a load
	// balancer. Default: https://<vip, or the first control plane>:6443.
	Endpoint string `pulumi:"endpoint,optional"`
	// Additional names and addresses in the certificates of the Kubernetes API and of the nodes' Talos APIs. Default:
	// none.
	CertSANs []string `pulumi:"certSANs,optional"`
	// The URL of the discovery service, or none; then nodes find each other by the endpoint. Default: Talos' own.
	Discovery string `pulumi:"discovery,optional"`
	// The URLs that nodes send the logs of Talos' services and of the kernel to, as JSON lines: tcp://10.0.0.7:6050.
	// Default: none.
	LogDestinations []string `pulumi:"logDestinations,optional"`
	// The tailnet that the nodes join; their images have the extension tailscale. Default: none.
	Tailscale *Tailscale `pulumi:"tailscale,optional"`
	// The virtual IP of the Kubernetes API, an unused address of the network. Default: none.
	VIP netip.Addr `pulumi:"vip,optional" provider:"type=go@1:netip:text"`
	// The Talos version for which secrets and configurations are generated at first. Default: the first control plane's.
	TalosVersion string `pulumi:"talosVersion,optional"`
	// The version contract of an existing cluster's secrets, such as v1.12, for which its configurations are checked.
	// Default: that of new clusters with talosVersion.
	Contract string `pulumi:"contract,optional"`
	// The full Kubernetes version, with its v. Default: the default version of the Talos minor version.
	KubernetesVersion string `pulumi:"kubernetesVersion,optional"`
	// How Talos is upgraded on running nodes. Default: one node at a time, without downgrades.
	Upgrades *TalosUpgrades `pulumi:"upgrades,optional"`
	// How many seconds a drain may take before a node is restarted, upgraded or removed. Default: 300.
	DrainTimeoutSeconds int `pulumi:"drainTimeoutSeconds,optional"`
	// A shell command that must succeed before a node is drained (for a restart, an upgrade or a removal) and before
	// Kubernetes is upgraded. The administrator's kubeconfig is in KUBECONFIG. Default: none.
	HealthCheck string `pulumi:"healthCheck,optional"`
	// When running nodes may be restarted, and Talos and Kubernetes upgraded. Default: at any time.
	Maintenance *Maintenance `pulumi:"maintenance,optional"`
	// The outputs schematicId of the nodes' images: upgrades wait until the Image Factory has them. Default: none.
	Schematics pulumi.StringArrayInput `pulumi:"schematics,optional"`
	// Where snapshots of etcd are stored before nodes are upgraded. Default: none, no snapshots are taken.
	Backup *Backup `pulumi:"backup,optional"`
	// Bootstrap an empty etcd if all control planes have lost their data, once for each text: the cluster's objects are
	// lost, and its workers stop their pods. Default: none, such a cluster is not bootstrapped again.
	BootstrapEmpty string `pulumi:"bootstrapEmpty,optional"`
	// The network of the nodes without one of their own.
	Network Network `pulumi:"network"`
	// The IPv4 network of pods, which cannot change. Default: Talos' own, 10.244.0.0/16.
	PodCIDR netip.Prefix `pulumi:"podCidr,optional" provider:"type=go@1:netip:text"`
	// The IPv4 network of services, which cannot change. Default: Talos' own, 10.96.0.0/12.
	ServiceCIDR netip.Prefix `pulumi:"serviceCidr,optional" provider:"type=go@1:netip:text"`
	// The IPv6 network of pods of a dual-stack cluster, which cannot change. Default: fd00:10:244::/56 if network has
	// IPv6, otherwise none.
	PodCIDRIPv6 netip.Prefix `pulumi:"podCidrIpv6,optional" provider:"type=go@1:netip:text"`
	// The IPv6 network of services of a dual-stack cluster, which cannot change. Default: fd00:10:96::/112 if network has
	// IPv6, otherwise none.
	ServiceCIDRIPv6 netip.Prefix `pulumi:"serviceCidrIpv6,optional" provider:"type=go@1:netip:text"`
	// The CNI. Default: none, nodes wait for a CNI that replaces kube-proxy.
	CNI *CNI `pulumi:"cni,optional"`
	// The API servers: who logs in, what is recorded, and what pods may do. Default: as Talos sets them.
	APIServer *APIServer `pulumi:"apiServer,optional"`
	// Mirrors, users and certificate authorities of image registries. Default: none.
	Registries *Registries `pulumi:"registries,optional"`
	// Talos' firewall on all nodes. Default: none, everything is open.
	Firewall *Firewall `pulumi:"firewall,optional"`
	// The nodes. At least one of them is a control plane.
	Nodes []ClusterNode `pulumi:"nodes"`
	// Pools that a cluster autoscaler adds machines to; needs proxmox. Default: none.
	Autoscaled []AutoscaledPool `pulumi:"autoscaled,optional"`
	// Let ordinary pods run on control planes. Default: true for clusters without workers.
	AllowSchedulingOnControlPlanes *bool `pulumi:"allowSchedulingOnControlPlanes,optional"`
	// Do not install NVIDIA's device plugin, because NVIDIA's GPU Operator includes it. Default: false.
	GPUOperator bool `pulumi:"gpuOperator,optional"`
	// The source that Flux reconciles. Default: none, and Flux is not installed.
	GitOps *GitOps `pulumi:"gitops,optional"`
	// Talos strategic-merge patches for all nodes, one YAML document each. Default: none.
	Patches []string `pulumi:"patches,optional"`
	// The topology of the nodes on Proxmox, and the Proxmox accounts of the cluster's software. Default: none.
	Proxmox *Proxmox `pulumi:"proxmox,optional"`
	// Store patches and time servers as secrets in state and previews. Default: false.
	Secret bool `pulumi:"secret,optional"`
	// Protect control-plane VMs, secrets and the bootstrap against deletion. Default: false.
	Protect bool `pulumi:"protect,optional"`
	// The URL of the Image Factory whose installer the nodes use, without a path. Default: https://factory.talos.dev.
	FactoryURL string `pulumi:"factoryUrl,optional"`

	planned *plannedConfigurations // set by [TalosClusterArgs.Validated]
}

// ClusterNode is a node of a cluster, with its VM.
type ClusterNode struct {
	// The name of the VM and of the Kubernetes node, which cannot change.
	Name string `pulumi:"name"`
	// controlplane or worker. Default: worker.
	Role string `pulumi:"role,optional"`
	// The address with its prefix length, 10.0.0.10/24; with DHCP the reserved one.
	Address netip.Prefix `pulumi:"address" provider:"type=go@1:netip:text"`
	// The address in the IPv6 network of a dual-stack cluster, with its prefix length: fd00:1::10/64. Default: none.
	AddressIPv6 netip.Prefix `pulumi:"addressIpv6,optional" provider:"type=go@1:netip:text"`
	// The network of its first network device; with a VIP, the same for all control planes. Its time servers and
	// addressing are the cluster's. Default: the cluster's.
	Network *Network `pulumi:"network,optional"`
	// The VM.
	Machine Machine `pulumi:"machine"`
	// Bonds of those additional network devices that name them. Default: none.
	Bonds []Bond `pulumi:"bonds,optional"`
	// VLANs that the node tags on its first network device. Default: none.
	VLANs []VLAN `pulumi:"vlans,optional"`
	// The VM's current Proxmox host, if the cluster's proxmox is set; a running machine may be on another host than a new
	// one would be. Default: the machine's node.
	Zone string `pulumi:"zone,optional"`
	// The contents of its image, and of the installer for upgrades.
	Talos Talos `pulumi:"talos"`
	// Labels of the Kubernetes node; running nodes are updated. Default: none.
	Labels map[string]string `pulumi:"labels,optional"`
	// Taints of the Kubernetes node by key, as value:Effect or Effect; running nodes are updated. Default: none.
	Taints map[string]string `pulumi:"taints,optional"`
	// Talos strategic-merge patches for this node, one YAML document each, after the cluster's. Default: none.
	Patches []string `pulumi:"patches,optional"`
	// Store patches, labels and taints as secrets in state and previews. Default: false.
	Secret bool `pulumi:"secret,optional"`
	// The keys of its encrypted volumes. Default: none, they are not encrypted.
	Encryption *Encryption `pulumi:"encryption,optional"`
	// Passed-through GPUs, at most 16. Default: none.
	GPUs []GPU `pulumi:"gpus,optional"`
	// Flavour and track of the NVIDIA driver in its image, such as open production; required with gpus.
	Driver string `pulumi:"driver,optional"`
	// How many pods share each GPU. Default: 0, one pod.
	TimeSlicing int `pulumi:"timeSlicing,optional"`
	// Taint the node so that only pods that tolerate the GPU taint run there. Default: false.
	Dedicated bool `pulumi:"dedicated,optional"`
	// Skip a dead worker: Talos, Kubernetes and machine configurations change without it. Default: false.
	Skip bool `pulumi:"skip,optional"`
}

func (n ClusterNode) isControlPlane() bool { return n.Role == RoleControlPlane }
func (n ClusterNode) isSkipped() bool      { return n.Skip && !n.isControlPlane() }

// network returns the network of a node's first network device.
func (a TalosClusterArgs) network(n ClusterNode) Network {
	if n.Network != nil {
		return *n.Network
	}

	return a.Network
}

// networks returns the networks of the nodes, without duplicates.
func (a TalosClusterArgs) networks() (cidrs []string) {
	for _, n := range a.nodes() {
		network := a.network(n)
		for _, cidr := range []netip.Prefix{network.CIDR, orZero(network.IPv6).CIDR} {
			if cidr.IsValid() && !slices.Contains(cidrs, cidr.String()) {
				cidrs = append(cidrs, cidr.String())
			}
		}
	}

	return cidrs
}

// controlPlanes and workers return the nodes by role, in order.
func (a TalosClusterArgs) controlPlanes() []ClusterNode {
	return slices.DeleteFunc(slices.Clone(a.Nodes), func(n ClusterNode) bool { return !n.isControlPlane() })
}

func (a TalosClusterArgs) workers() []ClusterNode {
	return slices.DeleteFunc(slices.Clone(a.Nodes), ClusterNode.isControlPlane)
}

// withoutSkipped returns the cluster without skipped workers.
func (a TalosClusterArgs) withoutSkipped() TalosClusterArgs {
	a.Nodes = slices.DeleteFunc(slices.Clone(a.Nodes), ClusterNode.isSkipped)

	return a
}

// nodes returns the control planes, then the workers.
func (a TalosClusterArgs) nodes() []ClusterNode { return slices.Concat(a.controlPlanes(), a.workers()) }

func (a TalosClusterArgs) controlPlaneCount() int { return len(a.controlPlanes()) }

// GPUOperatorValues returns the values of NVIDIA's GPU Operator for a cluster that uses it; empty for others.
func (a TalosClusterArgs) GPUOperatorValues() (string, error) {
	gpus := clusterGPUs(a)
	if gpus == nil || !a.GPUOperator {
		return "", nil
	}

	return talos.GPUOperatorValues(*gpus)
}

// Validated returns the arguments with defaults and checked configurations, or all their problems, without registering
// anything. Afterwards only templates, mappings and the readiness of hosts may be set on its nodes.
func (a TalosClusterArgs) Validated(name string) (TalosClusterArgs, error) {
	if a.planned != nil {
		return a, nil
	}

	a = a.withDefaults(name)
	if err := a.validate(name); err != nil {
		return a, err
	}

	planned, err := planConfigurations(a)
	a.planned = &planned

	return a, err
}

func (a TalosClusterArgs) withDefaults(name string) TalosClusterArgs {
	setDefault(&a.Name, name)

	a.Network = networkWithDefaults(a.Network)
	if a.Network.IPv6 != nil {
		setDefault(&a.PodCIDR, netip.MustParsePrefix(talos.DefaultPodCIDR))
		setDefault(&a.ServiceCIDR, netip.MustParsePrefix(talos.DefaultServiceCIDR))
		setDefault(&a.PodCIDRIPv6, netip.MustParsePrefix(talos.DefaultPodCIDRIPv6))
		setDefault(&a.ServiceCIDRIPv6, netip.MustParsePrefix(talos.DefaultServiceCIDRIPv6))
	}

	a.Proxmox = a.Proxmox.WithDefaults()

	a.Nodes = slices.Clone(a.Nodes)
	for i := range a.Nodes {
		n := &a.Nodes[i]
		setDefault(&n.Role, RoleWorker)
		n.Talos, n.Machine = talosWithDefaults(n.Talos), n.Machine.withDefaults()

		if n.Network != nil {
			own := networkWithDefaults(*n.Network)
			own.NTP, own.NTS, own.DHCP = a.Network.NTP, a.Network.NTS, a.Network.DHCP
			n.Network = &own
		}

		n.Machine.Firewall = n.Machine.Firewall || orZero(a.Firewall).Proxmox != nil
		n.Machine.Agent = n.Machine.Agent || n.Talos.HasAgent()
		n.Secret = n.Secret || orZero(n.Encryption).Passphrase != ""
		setDefault(&n.Zone, n.Machine.Host)
	}

	if a.Backup != nil {
		backup := *a.Backup
		setDefault(&backup.Name, a.Name)
		a.Backup = &backup
	}

	a.GitOps = a.GitOps.WithDefaults(a.Name)
	a.APIServer = a.APIServer.WithDefaults()

	if a.AllowSchedulingOnControlPlanes == nil {
		alone := a.controlPlaneCount() == len(a.Nodes)
		a.AllowSchedulingOnControlPlanes = &alone
	}

	if a.controlPlaneCount() == 0 {
		return a
	}

	first := a.controlPlanes()[0]
	setDefault(&a.TalosVersion, first.Talos.Version)

	if a.KubernetesVersion == "" {
		a.KubernetesVersion, _ = talos.DefaultKubernetes(a.TalosVersion)
	}

	a.CNI = cniWithDefaults(a.CNI, a.KubernetesVersion)

	host := cmp.Or(a.VIP, first.Address.Addr())
	setDefault(&a.Endpoint, "https://"+netip.AddrPortFrom(host, talos.APIPort).String())

	return a
}

func checkNetwork(found *problem.List, path string, value netip.Prefix) {
	requiredAddress(found, path, value, "the network, such as 10.0.0.0/24")

	if value != value.Masked() {
		found.Add(path, value.String(), "is not a network; write it as %s", value.Masked())
	}
}

func nodeAddresses(nodes []ClusterNode) pulumi.StringArray {
	addresses := make(pulumi.StringArray, 0, len(nodes))
	for _, n := range nodes {
		addresses = append(addresses, pulumi.String(n.Address.Addr().String()))
	}

	return addresses
}
