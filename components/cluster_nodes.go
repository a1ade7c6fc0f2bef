package components

import (
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/tokens"
	"talos-proxmox/internal/vmlookup"
)

// clonesAtOnce limits parallel clones on one datastore of one host. They share its throughput, and Proxmox creates one
// volume at a time there; a clone waits only ten seconds for its turn. Four clones of two disks fit into that even if a
// volume takes a second.
const clonesAtOnce = 4

// registerNodes creates all VMs in parallel, within the limit for clones, and configures them as they come up. Control
// planes are configured in order: a configuration that the first one refuses does not reach the others. At first
// creation that costs only one call's time for each, because the machines boot and install in parallel.
//
// Existing nodes are updated one at a time, control planes first. Existing workers wait for them without a dependency,
// which would also order deletions and first creation.
func (c *TalosCluster) registerNodes(ctx *pulumi.Context, name string, args TalosClusterArgs) error {
	queue, credentials := cloneQueue{}, c.secrets.ClientConfiguration

	rollout, err := newRollout(ctx, name, args, c.nodesTalosconfig, &c.leaseLost)
	if err != nil {
		return err
	}

	var (
		previous []pulumi.Resource // the configuration of the previous control plane
		updated  []pulumi.Input    // the configurations of control planes, without dependencies
	)

	for _, n := range args.nodes() {
		options := clusterOptions{
			vmDependsOn:            append(queue.dependencies(n), c.upgradeDependencies(ctx, n)...),
			configurationDependsOn: []pulumi.Resource{c.kubernetesUpgrade},
			rollout:                rollout,
			secrets:                c.secrets,
			skipped:                c.isSkipped(ctx, n),
			firewall:               clusterProxmoxFirewall(args),
			volumes:                plainVolumes(args, n),
			unreachable:            c.unreachable[n.Name],
			grantAccess:            func(node *TalosNode) ([]pulumi.Resource, error) { return c.grantNodeAccess(ctx, n, node) },
		}

		switch {
		case n.isControlPlane():
			options.configurationDependsOn = append(options.configurationDependsOn, previous...)
		case vmlookup.FromContext(ctx).HasExisted(n.Name):
			options.updateAfter = updated
		}

		node, err := c.registerNode(ctx, n, TalosNodeArgs{
			Name: n.Name, Cluster: args.Name, Role: n.Role, Machine: n.Machine, Network: new(args.network(n)),
			Address:       pulumi.String(n.Address.String()),
			AddressIPv6:   n.AddressIPv6,
			Protect:       args.Protect && n.isControlPlane(),
			Configuration: machineConfiguration(args, n, c.secrets),
			Client: TalosClient{
				CACertificate:     credentials.CaCertificate(),
				ClientCertificate: credentials.ClientCertificate(),
				ClientKey:         credentials.ClientKey(),
			},
		}, options)
		if err != nil {
			return err
		}

		queue.add(n, node.vm)

		if n.isControlPlane() {
			previous = []pulumi.Resource{node.configuration}
			updated = append(updated, detached(ctx, node.configuration.URN()))
		}

		c.nodes = append(c.nodes, node)
	}

	return nil
}

// plainVolumes returns the directory volumes of a node that no encrypted patch defines.
func plainVolumes(a TalosClusterArgs, n ClusterNode) []string {
	if n.Secret {
		return nil
	}

	return talos.DirectoryVolumes(slices.Concat(a.Patches, n.Patches))
}

// isSkipped reports whether a node's machine is left as it is: a skipped one, and one that does not answer and was not
// configured by this command before.
func (c *TalosCluster) isSkipped(ctx *pulumi.Context, n ClusterNode) bool {
	return n.isSkipped() ||
		c.unreachable[n.Name] && vmlookup.FromContext(ctx).Command(n.Name+tokens.OfConfiguration).Request == ""
}

// registerNode registers a node, as a GPU worker if it has GPUs. A control plane that gains or loses its GPUs stays the
// same machine.
func (c *TalosCluster) registerNode(
	ctx *pulumi.Context, n ClusterNode, args TalosNodeArgs, options clusterOptions,
) (*TalosNode, error) {
	opts := []pulumi.ResourceOption{pulumi.Parent(c)}
	if len(n.GPUs) > 0 {
		worker, err := newGPUWorker(ctx, n.Name, GPUWorkerArgs{Node: args, GPUs: n.GPUs, Driver: n.Driver}, options, opts...)
		if err != nil {
			return nil, err
		}

		return worker.Node, nil
	}

	if n.isControlPlane() {
		worker := pulumi.CreateURN(
			pulumi.String(n.Name), pulumi.String(GPUWorkerType), c.URN(), pulumi.String(ctx.Project()),
			pulumi.String(ctx.Stack()),
		)
		opts = append(opts, pulumi.Aliases([]pulumi.Alias{{ParentURN: worker}}))
	}

	return newTalosNode(ctx, n.Name, args, options, opts...)
}

// cloneQueue limits parallel clones: each waits for the one clonesAtOnce before it on the same datastore of the same
// host. It holds the machines of one cluster only: a wait across clusters would make the removal of one depend on the
// other.
type cloneQueue map[ImageStore][]pulumi.Resource

func (q cloneQueue) dependencies(n ClusterNode) []pulumi.Resource {
	clones := q[storeOf(n)]
	if n.Machine.Template == nil || len(clones) < clonesAtOnce {
		return nil
	}

	return []pulumi.Resource{clones[len(clones)-clonesAtOnce]}
}

func (q cloneQueue) add(n ClusterNode, vm pulumi.Resource) {
	if n.Machine.Template != nil {
		q[storeOf(n)] = append(q[storeOf(n)], vm)
	}
}

func storeOf(n ClusterNode) ImageStore {
	return ImageStore{Host: n.Machine.Host, Datastore: n.Machine.Datastore}
}
