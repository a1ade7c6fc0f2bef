package components

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/machine"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
)

// clusterConfiguration returns what the machine configurations of a cluster have in common. The arguments were
// validated.
func clusterConfiguration(a TalosClusterArgs) talos.ClusterConfig {
	config := talos.ClusterConfig{
		Subnets:                        []netip.Prefix{netip.MustParsePrefix(a.Network.CIDR)},
		NTP:                            a.Network.NTP,
		AllowSchedulingOnControlPlanes: *a.AllowSchedulingOnControlPlanes,
		GPUs:                           clusterGPUs(a),
		Patches:                        a.Patches,
	}
	config.VIP, _ = netip.ParseAddr(a.VIP)
	config.PodCIDR, _ = netip.ParsePrefix(a.PodCIDR)

	config.ServiceCIDR, _ = netip.ParsePrefix(a.ServiceCIDR)
	for _, server := range a.Network.DNS {
		config.DNS = append(config.DNS, netip.MustParseAddr(server))
	}

	return config
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

// nodeConfiguration returns what is specific to one node's machine configuration. Proxmox tags VLANs, which are
// invisible to the machine.
func nodeConfiguration(a TalosClusterArgs, n ClusterNode) talos.NodeConfig {
	network := a.Network

	first := talos.Interface{
		MAC: n.Machine.MAC, Link: talos.Link{DHCP: network.DHCP, Address: n.prefix(), MTU: network.MTU},
	}
	if !network.DHCP {
		first.Gateway = network.gateway()
	}

	interfaces := []talos.Interface{first}

	for _, card := range n.Machine.ExtraNICs {
		address := card.Prefix()
		interfaces = append(interfaces, talos.Interface{
			MAC:  card.MAC,
			Link: talos.Link{DHCP: !address.IsValid(), Address: address, MTU: card.MTU},
		})
	}

	var gpus *talos.GPUs
	if len(n.GPUs) > 0 {
		gpus = &talos.GPUs{TimeSlicing: n.TimeSlicing, Dedicated: n.Dedicated}
	}

	factory := talos.Factory{URL: a.FactoryURL}

	node := talos.NodeConfig{
		Name:       n.Name,
		Role:       n.Role,
		Install:    talos.Install{Image: factory.Installer(n.Talos.SchematicID(), n.Talos.Version, n.Talos.Platform)},
		Interfaces: interfaces,
		Labels:     n.Labels,
		Taints:     n.Taints,
		GPUs:       gpus,
		Patches:    n.Patches,
	}
	if a.Proxmox != nil {
		node.Region, node.Zone, node.ProviderID = a.Proxmox.Region, n.Zone, providerID(a.Proxmox, n.Machine.VMID)
	}

	return node
}

// plannedPatches are all patches of a cluster, by role and by node. They are computed before anything is registered, so
// that their problems are found first.
type plannedPatches struct {
	contract string
	marks    []request.Marks
	Roles    map[string][]string `json:"roles"`
	Nodes    map[string][]string `json:"nodes"`
}

func planPatches(a TalosClusterArgs) (plannedPatches, error) {
	release, err := talos.ReleaseOf(a.TalosVersion)
	if err != nil {
		return plannedPatches{}, fmt.Errorf("cluster %q: %w", a.Name, err)
	}

	contract := cmp.Or(a.Contract, release.Contract)
	planned := plannedPatches{contract: contract, Roles: map[string][]string{}, Nodes: map[string][]string{}}
	common := clusterConfiguration(a)

	if err := checkConfigurations(a, contract); err != nil {
		return plannedPatches{}, err
	}

	var problems []error

	for _, role := range []string{RoleControlPlane, RoleWorker} {
		if planned.Roles[role], err = talos.RolePatches(common, role); err != nil {
			problems = append(problems, err)
		}
	}

	for _, n := range a.nodes() {
		node := nodeConfiguration(a, n)
		if planned.Nodes[n.Name], err = talos.NodePatches(common, node, contract); err != nil {
			problems = append(problems, redactSecretError(n, err))

			continue
		}

		marks, err := nodeMarks(common, node)
		if err != nil {
			problems = append(problems, redactSecretError(n, err))
		}

		planned.marks = append(planned.marks, marks)
	}

	if err := errors.Join(problems...); err != nil {
		return plannedPatches{}, fmt.Errorf("cluster %q: %w", a.Name, err)
	}

	return planned, nil
}

// checkConfigurations generates each node's machine configuration and checks it as the machine will, before anything is
// registered. A patch that makes the configurations of several nodes invalid is reported once.
func checkConfigurations(a TalosClusterArgs, contract string) error {
	generation := talos.Generation{
		ClusterName: a.Name, Endpoint: a.Endpoint, KubernetesVersion: a.KubernetesVersion, Contract: contract,
	}
	common, found := clusterConfiguration(a), &problem.List{}

	for i, n := range a.Nodes {
		path := fmt.Sprintf("nodes[%d]", i)

		invalid, err := talos.CheckConfiguration(generation, common, nodeConfiguration(a, n))
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
	}

	return problemsOf("cluster", a.Name, found)
}

// roleConfigurations generates a machine configuration for each role of the cluster's nodes, for the version contract
// of its secrets.
func roleConfigurations(
	ctx *pulumi.Context, a TalosClusterArgs, secrets *machine.Secrets, parent pulumi.Resource,
) map[string]pulumi.StringOutput {
	configurations := map[string]pulumi.StringOutput{}
	for _, n := range a.nodes() {
		if _, exists := configurations[n.Role]; exists {
			continue
		}

		generated := machine.GetConfigurationOutput(ctx, machine.GetConfigurationOutputArgs{
			ClusterEndpoint:   pulumi.String(a.Endpoint),
			ClusterName:       pulumi.String(a.Name),
			ConfigPatches:     pulumi.ToStringArray(a.planned.Roles[n.Role]),
			Docs:              pulumi.Bool(false),
			Examples:          pulumi.Bool(false),
			KubernetesVersion: pulumi.String(a.KubernetesVersion),
			MachineSecrets:    secrets.MachineSecrets,
			MachineType:       pulumi.String(n.Role),
			TalosVersion:      secrets.TalosVersion,
		}, pulumi.Parent(parent))
		configurations[n.Role] = pulumi.ToSecret(generated.MachineConfiguration()).(pulumi.StringOutput)
	}

	return configurations
}

// nodePatches returns a node's patches for the version contract of the secrets, which an upgrade does not raise.
func nodePatches(a TalosClusterArgs, n ClusterNode, secrets *machine.Secrets) pulumi.StringArrayInput {
	patches := secrets.TalosVersion.ApplyT(func(contract string) ([]string, error) {
		if contract == a.planned.contract {
			return a.planned.Nodes[n.Name], nil
		}

		patches, err := talos.NodePatches(clusterConfiguration(a), nodeConfiguration(a, n), contract)

		return patches, redactSecretError(n, err)
	}).(pulumi.StringArrayOutput)

	return secretTexts(n.Secret, patches)
}
