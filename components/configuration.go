package components

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/machine"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/talos"
)

// clusterConfiguration returns what the machine configurations of a cluster have in common.
func clusterConfiguration(a TalosClusterArgs) talos.ClusterConfig {
	return talos.ClusterConfig{
		CertSANs:                       a.CertSANs,
		NTP:                            a.Network.NTP,
		NTS:                            a.Network.NTS,
		Discovery:                      a.Discovery,
		LogDestinations:                a.LogDestinations,
		Tailscale:                      a.Tailscale.ForTalos(),
		AllowSchedulingOnControlPlanes: *a.AllowSchedulingOnControlPlanes,
		APIServer:                      a.APIServer.ForTalos(),
		Registries:                     a.Registries.ForTalos(),
		GPUs:                           clusterGPUs(a),
		Firewall:                       clusterFirewall(a),
		Patches:                        a.Patches,
		VIP:                            a.VIP,
		PodCIDRs:                       validPrefixes(a.PodCIDR, a.PodCIDRIPv6),
		ServiceCIDRs:                   validPrefixes(a.ServiceCIDR, a.ServiceCIDRIPv6),
	}
}

// validPrefixes returns the networks that are set.
func validPrefixes(list ...netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(list, func(prefix netip.Prefix) bool { return !prefix.IsValid() })
}

// joinPrefixes returns those that are set, separated by commas.
func joinPrefixes(list ...netip.Prefix) string {
	texts := make([]string, 0, len(list))
	for _, prefix := range validPrefixes(list...) {
		texts = append(texts, prefix.String())
	}

	return strings.Join(texts, ",")
}

// clusterGPUs returns what the cluster's GPU nodes have in common; nil = it has none.
func clusterGPUs(a TalosClusterArgs) *talos.ClusterGPUs {
	var gpus *talos.ClusterGPUs

	for _, n := range a.nodes() {
		if len(n.GPUs) == 0 {
			continue
		}

		if gpus == nil {
			gpus = &talos.ClusterGPUs{Operator: a.GPUOperator}
		}

		if !slices.Contains(gpus.TimeSlicing, n.TimeSlicing) {
			gpus.TimeSlicing = append(gpus.TimeSlicing, n.TimeSlicing)
		}
	}

	return gpus
}

// nodeConfiguration returns what is specific to one node's machine configuration.
func nodeConfiguration(a TalosClusterArgs, n ClusterNode) talos.NodeConfig {
	network := a.network(n)

	var gpus *talos.GPUs
	if len(n.GPUs) > 0 {
		gpus = &talos.GPUs{TimeSlicing: n.TimeSlicing, Dedicated: n.Dedicated}
	}

	factory := talos.Factory{URL: a.FactoryURL}

	node := talos.NodeConfig{
		Name:          n.Name,
		Role:          n.Role,
		TalosVersion:  n.Talos.Version,
		Install:       talos.Install{Image: factory.Installer(n.Talos.SchematicID(), n.Talos.Version, n.Talos.Kind())},
		Subnet:        network.CIDR,
		DNS:           network.DNS,
		SearchDomains: a.Network.SearchDomains,
		StaticHosts:   staticHosts(a.Network.StaticHosts),
		Interfaces:    interfaceConfigs(n, network),
		Bonds:         bondConfigs(n.Bonds),
		Labels:        n.Labels,
		Taints:        n.Taints,
		GPUs:          gpus,
		Encryption:    n.Encryption.ForTalos(),
		Patches:       n.Patches,
	}
	if a.Proxmox != nil {
		node.Region, node.Zone, node.ProviderID = a.Proxmox.Region, n.Zone, providerID(a.Proxmox, n.Machine.VMID)
	}

	return node
}

// plannedConfigurations are what is computed before anything is registered, so that its problems are found first.
type plannedConfigurations struct {
	contract string
	nodes    []talos.Planned
}

// planConfigurations plans each node's machine configuration and checks it as the machine will, before anything is
// registered. A patch that makes the configurations of several nodes invalid is reported once.
func planConfigurations(a TalosClusterArgs) (plannedConfigurations, error) {
	release, err := talos.ReleaseOf(a.TalosVersion)
	if err != nil {
		return plannedConfigurations{}, fmt.Errorf("cluster %q: %w", a.Name, err)
	}

	planned := plannedConfigurations{contract: cmp.Or(a.Contract, release.Contract)}
	generation, common, found := a.generation(planned.contract), clusterConfiguration(a), &problem.List{}

	for i, n := range a.Nodes {
		path := fmt.Sprintf("nodes[%d]", i)

		node, invalid, err := talos.Plan(generation, common, nodeConfiguration(a, n))
		if err != nil {
			found.Add(path, nil, "has no valid machine configuration: %s", redactSecretError(n, err))
		}

		for _, patch := range invalid {
			path, reason := fmt.Sprintf("%s.patches[%d]", path, patch.Index), patch.Reason
			if patch.OfCluster {
				path = fmt.Sprintf("patches[%d]", patch.Index)
			}

			if n.Secret || a.Secret && patch.OfCluster {
				reason = "the reason is not shown, because it may be encrypted; `talosctl machineconfig patch` reports it"
			}

			if !found.Has(path) {
				found.Add(path, nil, "makes the machine configuration of %s invalid; correct or remove it: %s", n.Name, reason)
			}
		}

		planned.nodes = append(planned.nodes, node)
	}

	planAutoscaled(a, generation, found)

	return planned, problemsOf("cluster", a.Name, found)
}

// generation returns what the configurations of a cluster are generated from.
func (a TalosClusterArgs) generation(contract string) talos.Generation {
	return talos.Generation{
		ClusterName: a.Name, Endpoint: a.Endpoint, KubernetesVersion: a.KubernetesVersion, Contract: contract,
	}
}

// machineConfiguration generates a node's machine configuration, for the version contract of the secrets, which an
// upgrade does not raise. It is a secret.
func machineConfiguration(a TalosClusterArgs, n ClusterNode, secrets *machine.Secrets) pulumi.StringOutput {
	generated := pulumi.All(secrets.MachineSecrets, secrets.TalosVersion).ApplyT(func(values []any) (string, error) {
		text, err := talos.Configuration(a.generation(values[1].(string)), clusterConfiguration(a), nodeConfiguration(a, n),
			secretValues(values[0].(machine.MachineSecrets)))

		return text, redactSecretError(n, err)
	})

	return pulumi.ToSecret(generated).(pulumi.StringOutput)
}

// secretValues returns machine secrets as the provider's resource has them in the state.
func secretValues(s machine.MachineSecrets) map[string]any {
	pair := func(c machine.Certificate) map[string]any { return map[string]any{"cert": c.Cert, "key": c.Key} }

	return map[string]any{
		"certs": map[string]any{
			"etcd": pair(s.Certs.Etcd), "k8s": pair(s.Certs.K8s), "k8sAggregator": pair(s.Certs.K8sAggregator),
			"os": pair(s.Certs.Os), "k8sServiceaccount": map[string]any{"key": s.Certs.K8sServiceaccount.Key},
		},
		"cluster": map[string]any{"id": s.Cluster.Id, "secret": s.Cluster.Secret},
		"secrets": map[string]any{
			"bootstrapToken": s.Secrets.BootstrapToken, "secretboxEncryptionSecret": s.Secrets.SecretboxEncryptionSecret,
			"aescbcEncryptionSecret": orZero(s.Secrets.AescbcEncryptionSecret),
		},
		"trustdinfo": map[string]any{"token": s.Trustdinfo.Token},
	}
}
