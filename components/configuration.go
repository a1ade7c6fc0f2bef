package components

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/machine"

	"proxmox-talos/internal/request"
	"proxmox-talos/internal/spec"
	"proxmox-talos/internal/talos"
)

// clusterConfiguration is the part of the plan that all machine configurations of a cluster follow from.
func clusterConfiguration(c spec.Cluster) talos.ClusterConfig {
	return talos.ClusterConfig{
		Subnets:                        []netip.Prefix{c.Network.CIDR},
		VIP:                            c.VIP,
		PodCIDR:                        c.PodCIDR,
		ServiceCIDR:                    c.ServiceCIDR,
		DNS:                            c.Network.DNS,
		NTP:                            c.Network.NTP,
		AllowSchedulingOnControlPlanes: c.AllowSchedulingOnControlPlanes,
		GPUs:                           clusterGPUs(c),
		Patches:                        c.Patches,
	}
}

// clusterGPUs are what the cluster's GPU nodes have in common; nil = it has none.
func clusterGPUs(c spec.Cluster) *talos.ClusterGPUs {
	var gpus *talos.ClusterGPUs
	for _, n := range c.Nodes() {
		if len(n.GPUs) == 0 {
			continue
		}
		if gpus == nil {
			gpus = &talos.ClusterGPUs{Operator: c.GPUOperator}
		}
		if !slices.Contains(gpus.TimeSlicing, n.TimeSlicing) {
			gpus.TimeSlicing = append(gpus.TimeSlicing, n.TimeSlicing)
		}
	}

	return gpus
}

// GPUOperatorValues returns the values of NVIDIA's GPU Operator for a cluster that uses it; empty for others.
func GPUOperatorValues(c spec.Cluster) (string, error) {
	gpus := clusterGPUs(c)
	if gpus == nil || !c.GPUOperator {
		return "", nil
	}

	return talos.GPUOperatorValues(*gpus)
}

// nodeConfiguration is the part of the plan that one machine's configuration follows from. VLANs are tagged by Proxmox and invisible to the machine.
func nodeConfiguration(n spec.Node, network spec.Network, factory talos.Factory) talos.NodeConfig {
	first := talos.Interface{MAC: n.MAC, Link: talos.Link{DHCP: network.DHCP, Address: n.Address, MTU: network.MTU}}
	if !network.DHCP {
		first.Gateway = network.Gateway
	}
	interfaces := []talos.Interface{first}
	for _, card := range n.ExtraNICs {
		interfaces = append(interfaces, talos.Interface{
			MAC:  card.MAC,
			Link: talos.Link{DHCP: !card.Address.IsValid(), Address: card.Address, MTU: card.MTU},
		})
	}

	t := n.Template
	var gpus *talos.GPUs
	if len(n.GPUs) > 0 {
		gpus = &talos.GPUs{TimeSlicing: n.TimeSlicing, Dedicated: n.Dedicated}
	}

	return talos.NodeConfig{
		Name:       n.Name,
		Role:       string(n.Role),
		Install:    talos.Install{Image: factory.Installer(SchematicOf(t).ID(), t.Version, t.Platform)},
		Interfaces: interfaces,
		Labels:     n.Labels,
		Taints:     n.Taints,
		GPUs:       gpus,
		Patches:    n.Patches,
	}
}

// plannedPatches are all patches of a cluster for the contract of its Talos version: by role and by node. Computing them finds what is wrong with them before
// anything is registered.
type plannedPatches struct {
	contract string
	marks    []request.Marks
	Roles    map[spec.Role][]string `json:"roles"`
	Nodes    map[string][]string    `json:"nodes"`
}

func planPatches(c spec.Cluster, factory talos.Factory) (plannedPatches, error) {
	contract, err := talos.Contract(c.TalosVersion)
	if err != nil {
		return plannedPatches{}, fmt.Errorf("cluster %q: %w", c.Name, err)
	}

	planned := plannedPatches{contract: contract, Roles: map[spec.Role][]string{}, Nodes: map[string][]string{}}
	common := clusterConfiguration(c)
	var problems []error
	for _, role := range []spec.Role{spec.RoleControlPlane, spec.RoleWorker} {
		if planned.Roles[role], err = talos.RolePatches(common, string(role)); err != nil {
			problems = append(problems, err)
		}
	}
	for _, n := range c.Nodes() {
		node := nodeConfiguration(n, c.Network, factory)
		if planned.Nodes[n.Name], err = talos.NodePatches(common, node, contract); err != nil {
			problems = append(problems, withoutDetails(n, err))

			continue
		}
		marks, err := planMarks(common, node)
		if err != nil {
			problems = append(problems, withoutDetails(n, err))
		}
		planned.marks = append(planned.marks, marks)
	}
	if err := errors.Join(problems...); err != nil {
		return plannedPatches{}, fmt.Errorf("cluster %q: %w", c.Name, err)
	}

	return planned, nil
}

// roleConfigurations generates a machine configuration for every role the cluster has nodes of, by the contract its secrets were made for.
func roleConfigurations(ctx *pulumi.Context, c spec.Cluster, planned plannedPatches, secrets *machine.Secrets, parent pulumi.Resource) map[spec.Role]pulumi.StringOutput {
	configurations := map[spec.Role]pulumi.StringOutput{}
	for _, n := range c.Nodes() {
		if _, done := configurations[n.Role]; done {
			continue
		}
		generated := machine.GetConfigurationOutput(ctx, machine.GetConfigurationOutputArgs{
			ClusterEndpoint:   pulumi.String(c.Endpoint),
			ClusterName:       pulumi.String(c.Name),
			ConfigPatches:     pulumi.ToStringArray(planned.Roles[n.Role]),
			Docs:              pulumi.Bool(false),
			Examples:          pulumi.Bool(false),
			KubernetesVersion: pulumi.String(c.KubernetesVersion),
			MachineSecrets:    secrets.MachineSecrets,
			MachineType:       pulumi.String(string(n.Role)),
			TalosVersion:      secrets.TalosVersion,
		}, pulumi.Parent(parent))
		configurations[n.Role] = pulumi.ToSecret(generated.MachineConfiguration()).(pulumi.StringOutput)
	}

	return configurations
}

// nodePatches follow the contract that the secrets recorded when they were made, which is not the installed version's after an upgrade.
func nodePatches(c spec.Cluster, n spec.Node, factory talos.Factory, secrets *machine.Secrets) pulumi.StringArrayInput {
	patches := secrets.TalosVersion.ApplyT(func(contract string) ([]string, error) {
		patches, err := talos.NodePatches(clusterConfiguration(c), nodeConfiguration(n, c.Network, factory), contract)

		return patches, withoutDetails(n, err)
	}).(pulumi.StringArrayOutput)

	return secretTexts(n.Secret, patches)
}
