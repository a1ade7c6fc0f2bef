package components

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"slices"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
)

func (a TalosClusterArgs) validate(name string) error {
	found := &problem.List{}
	if a.controlPlaneCount() == 0 {
		found.Add("nodes", nil, "none is a control plane; add at least one with the role controlplane")
	} else {
		checkVersion(found, "talosVersion", a.TalosVersion)

		if err := talos.CheckVersions(a.TalosVersion, a.KubernetesVersion); err != nil && !found.Has("talosVersion") {
			found.Add("kubernetesVersion", a.KubernetesVersion, "cannot be used: %s", err)
		}
	}

	checkNetwork(found, "network.cidr", a.Network.CIDR)
	validateNetwork(a.Network, "network.", found)

	if endpoint, err := url.Parse(a.Endpoint); a.Endpoint != "" && (err != nil || endpoint.Scheme != "https" ||
		endpoint.Hostname() == "" || endpoint.Port() == "") {
		found.Add("endpoint", a.Endpoint, "is not the URL of a Kubernetes API; write it as https://k8s.example.org:6443")
	}

	if a.DrainTimeoutSeconds < 0 {
		found.Add("drainTimeoutSeconds", a.DrainTimeoutSeconds, "is not a number of seconds; use 1 or more")
	}

	if count := orZero(a.Upgrades).ParallelWorkers; count < 0 {
		found.Add("upgrades.parallelWorkers", count, "is not a number of workers; use 1 or more")
	}

	if a.Backup != nil {
		required(found, "backup.directory", a.Backup.Directory, "the folder that snapshots are kept in")

		if len(a.Backup.Recipients) == 0 {
			found.Add("backup.recipients", nil, "is empty; add the public key of age that snapshots are encrypted to")
		}
	}

	validateProxmox(a.Proxmox, "proxmox.", found)
	validateGitOps(a.GitOps, found)

	a.validateServices(found)

	for _, network := range []struct {
		path  string
		value netip.Prefix
	}{
		{"podCidr", a.PodCIDR},
		{"serviceCidr", a.ServiceCIDR},
		{"podCidrIpv6", a.PodCIDRIPv6},
		{"serviceCidrIpv6", a.ServiceCIDRIPv6},
	} {
		if network.value.IsValid() {
			checkNetwork(found, network.path, network.value)
		}
	}

	firstPaths := map[string]string{}

	for i, n := range a.Nodes {
		path := fmt.Sprintf("nodes[%d].", i)
		n.validate(path, found)

		validateIPv6(path+"addressIpv6", a.network(n), n.AddressIPv6, found)

		for _, key := range []struct{ field, value string }{
			{"name", n.Name}, {"address", n.Address.String()}, {"addressIpv6", textOf(n.AddressIPv6)},
		} {
			if key.value == "" {
				continue
			}

			if first, exists := firstPaths[key.field+key.value]; exists && !found.Has(path+key.field) {
				found.Add(path+key.field, key.value, "is already at %s; list each node once", first)
			}

			firstPaths[key.field+key.value] = path + key.field
		}
	}

	validateCNI(a.CNI, a, found)
	validateFirewall(a, found)
	validateAutoscaled(a, found)

	return problemsOf("cluster", name, found)
}

// validateServices checks what nodes use and offer beside Kubernetes' own networks.
func (a TalosClusterArgs) validateServices(found *problem.List) {
	spec.CheckDiscovery("discovery", a.Discovery, found)
	spec.CheckLogDestinations("logDestinations", a.LogDestinations, found)
	spec.CheckMaintenance("maintenance", a.Maintenance, found)

	if a.Tailscale != nil {
		a.Tailscale.Check("tailscale", found)
	}

	for i, n := range a.Nodes {
		if a.Tailscale != nil && !n.Talos.HasExtension(talos.TailscaleExtension) {
			found.Add(fmt.Sprintf("nodes[%d].talos.extensions", i), nil, "lacks tailscale, which tailscale needs; add it")
		}

		if needs := talos.NTSNeeds(n.Talos.Version); a.Network.NTS && needs != "" {
			found.Add("network.nts", true, "needs Talos %s, and %s runs %s; set nts to false", needs, n.Name, n.Talos.Version)
		}
	}

	if a.APIServer != nil && a.controlPlaneCount() > 0 {
		a.APIServer.Check("apiServer", a.controlPlanes()[0].Talos.Version, found)
	}

	if a.Registries != nil {
		a.Registries.Check("registries", found)
	}
}

func (n ClusterNode) validate(path string, found *problem.List) {
	required(found, path+"name", n.Name, "the node's name")

	if n.Role != RoleControlPlane && n.Role != RoleWorker {
		found.Add(path+"role", n.Role, "is neither controlplane nor worker; choose one")
	}

	requiredAddress(found, path+"address", n.Address, "it with its prefix length, such as 10.0.0.10/24")

	if n.Network != nil {
		checkNetwork(found, path+"network.cidr", n.Network.CIDR)
		validateNetwork(*n.Network, path+"network.", found)
	}

	checkVersion(found, path+"talos.version", n.Talos.Version)
	n.Machine.validate(path+"machine.", found)
	n.validateBonds(path, found)

	if len(n.GPUs) > 0 {
		gpus := slices.Clone(n.GPUs)
		for i := range gpus { // a mapping may be passed later
			gpus[i].PCI = cmp.Or(gpus[i].PCI, gpus[i].Name)
		}

		validateGPUs(path, gpus, n.Driver, n.Machine.Host, found)
	}
}
