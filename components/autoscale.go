package components

import (
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/machine"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/tokens"
	"talos-proxmox/internal/vmlookup"
)

// AutoscaledPool is a pool of workers that a cluster autoscaler adds machines to.
//
// Its fields, from their own comments (make schema):
//   - Name string: The pool's name, which begins the machines' names.
//   - Max int: How many machines the autoscaler may add.
//   - Template string: The name of the VM templates that it clones, the same on every host.
//   - Talos Talos: What the templates contain.
//   - Hosts []string: The hosts of the machines, which have the templates.
//   - FirstVMID int: The lowest VMID of the machines.
//   - ResourcePool string: The Proxmox resource pool of the machines.
//   - Datastore string: The datastore of their disks.
//   - Cores int: Processor cores of each.
//   - MemoryMiB int: Memory of each in MiB.
//   - DiskGiB int: The disk of each in GiB.
//   - Tags []string: Proxmox tags, to which the program adds one of its own. Default: none.
//   - Labels map[string]string: Labels of the Kubernetes nodes. Default: none.
//   - Taints map[string]string: Taints of the Kubernetes nodes by key, as value:Effect or Effect. Default: none.
//   - Patches []string: Talos strategic-merge patches, one YAML document each, after the cluster's. Default: none.
//   - Secret bool: Show no patch, label or taint in errors. Default: false.
//   - Encryption *Encryption: The keys of their encrypted volumes. Default: none, they are not encrypted.
type AutoscaledPool = spec.AutoscaledPool

func validateAutoscaled(a TalosClusterArgs, found *problem.List) {
	for i, pool := range a.Autoscaled {
		at := fmt.Sprintf("autoscaled[%d].", i)
		required(found, at+"name", pool.Name, "the pool's name")
		required(found, at+"template", pool.Template, "the name of the VM templates")
		required(found, at+"resourcePool", pool.ResourcePool, "the Proxmox resource pool of the machines")
		required(found, at+"datastore", pool.Datastore, "the datastore, such as local-lvm")
		checkVersion(found, at+"talos.version", pool.Talos.Version)

		if len(pool.Hosts) == 0 {
			found.Add(at+"hosts", nil, "is missing; set the hosts that have the templates")
		}

		if pool.Max < 1 {
			found.Add(at+"max", pool.Max, "is no number of machines; use 1 or more")
		}

		if a.Proxmox == nil {
			found.Add("proxmox", nil, "is missing, and the autoscaler knows its machines by their provider ids; set it with region")
		}
	}
}

// autoscaledNode returns a machine that the autoscaler adds, as far as all of them are the same.
func (a TalosClusterArgs) autoscaledNode(pool AutoscaledPool) ClusterNode {
	network := a.Network
	network.DHCP = true

	return ClusterNode{
		Name: a.Name + "-" + pool.Name, Role: RoleWorker, Network: &network, Talos: talosWithDefaults(pool.Talos),
		Labels: pool.Labels, Taints: pool.Taints, Patches: pool.Patches, Encryption: pool.Encryption,
		Secret: pool.Secret || a.Secret || orZero(pool.Encryption).Passphrase != "",
	}
}

// autoscaledConfiguration returns what is specific to the machines of a pool in their machine configuration.
func (a TalosClusterArgs) autoscaledConfiguration(pool AutoscaledPool) talos.NodeConfig {
	return talos.Autoscaled(nodeConfiguration(a, a.autoscaledNode(pool)))
}

// planAutoscaled checks the machine configurations of the machines that an autoscaler adds, as those of nodes.
func planAutoscaled(a TalosClusterArgs, generation talos.Generation, found *problem.List) {
	for i, pool := range a.Autoscaled {
		_, invalid, err := talos.Plan(generation, clusterConfiguration(a), a.autoscaledConfiguration(pool))
		if err != nil {
			found.Add(fmt.Sprintf("autoscaled[%d]", i), nil, "has no valid machine configuration: %s",
				redactSecretError(a.autoscaledNode(pool), err))
		}

		for _, patch := range invalid {
			if !patch.OfCluster { // those are reported with the nodes
				found.Add(fmt.Sprintf("autoscaled[%d].patches[%d]", i, patch.Index), nil,
					"makes the machine configuration invalid; correct or remove it")
			}
		}
	}
}

// registerAutoscaled hands the healthy cluster what an autoscaler needs for each pool. Its deletion is refused while
// machines are there that the autoscaler added: all nodes are deleted after it.
func (c *TalosCluster) registerAutoscaled(ctx *pulumi.Context, name string, args TalosClusterArgs) error {
	for _, pool := range args.Autoscaled {
		req := request.Autoscale{
			Common:  request.Common{ControlPlanes: requestNodes(args.controlPlanes())},
			Proxmox: ProxmoxSettings(ctx), Pool: pool.Name,
			Marker: ownership.AutoscaledTag(vmlookup.FromContext(ctx).StackID, args.Name, pool.Name),
			Region: args.Proxmox.Region, Template: pool.Template, Hosts: pool.Hosts, FirstVMID: pool.FirstVMID,
			PVEPool:   pool.ResourcePool,
			Datastore: pool.Datastore, Max: pool.Max, Cores: pool.Cores, MemoryMiB: pool.MemoryMiB, DiskGiB: pool.DiskGiB,
			Tags: pool.Tags, Labels: pool.Labels, Taints: pool.Taints,
			Talos: pool.Talos.Version, KubernetesVersion: args.KubernetesVersion,
		}

		userData := pulumi.All(c.secrets.MachineSecrets, c.secrets.TalosVersion).ApplyT(func(values []any) (string, error) {
			text, err := talos.Configuration(args.generation(values[1].(string)), clusterConfiguration(args),
				args.autoscaledConfiguration(pool), secretValues(values[0].(machine.MachineSecrets)))

			return talos.AutoscaledTemplate(text), redactSecretError(args.autoscaledNode(pool), err)
		}).(pulumi.StringOutput)

		_, err := talosopsCall{
			verb: "autoscale", removes: true,
			request: func(userData, kubeconfig string) any {
				req.UserData, req.Kubeconfig = userData, kubeconfig

				return req
			},
			talosconfig: userData, kubeconfig: c.Kubeconfig,
		}.register(
			ctx, name+"-"+pool.Name+tokens.OfAutoscaled, pulumi.Parent(c), pulumi.DependsOn([]pulumi.Resource{c.gate}),
		)
		if err != nil {
			return err
		}
	}

	return nil
}
