package components

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/vmlookup"
)

// clonesAtOnce bounds clones on one datastore of one host. They share its throughput, and Proxmox makes one volume at a
// time there, whose turn a clone awaits for ten seconds only: four clones of two disks fit into that even where a
// volume takes a second.
const clonesAtOnce = 4

// makeNodes makes all VMs in parallel, as far as clones may, and configures them as they come up. Control planes are
// configured in order: a configuration that the first one refuses does not reach the others. At first creation that
// costs one call's time for each, since the machines boot and install in parallel.
//
// What runs is updated one node at a time, control planes first: workers that run wait for them without depending on
// them, since a dependency would order deletions and first creation as well.
func (c *TalosCluster) makeNodes(ctx *pulumi.Context, name string, args TalosClusterArgs) error {
	configurations := roleConfigurations(ctx, args, c.secrets, c)
	queue := cloneQueue{}

	rollout, err := newRollout(ctx, name, args, c.all, &c.taken)
	if err != nil {
		return err
	}

	var (
		configured []pulumi.Resource // the control plane configured last
		updated    []pulumi.Input    // the control planes
	)

	for _, n := range args.nodes() {
		turn := turn{
			madeAfter:    append(queue.before(n), c.afterUpgrades(ctx, n)...),
			appliedAfter: []pulumi.Resource{c.kubernetes},
			rollout:      rollout,
			keeps:        c.keptInputs(n),
			silent:       c.silent[n.Name],
			client:       c.secrets.ClientConfiguration,
			admitted:     func(node *TalosNode) ([]pulumi.Resource, error) { return c.admitNode(ctx, n, node) },
		}

		switch {
		case n.isControlPlane():
			turn.appliedAfter = append(turn.appliedAfter, configured...)
		case vmlookup.Of(ctx).HasRun(n.Name):
			turn.updatedAfter = updated
		}

		node, err := c.makeNode(ctx, n, TalosNodeArgs{
			Name: n.Name, Cluster: args.Name, Role: n.Role, Machine: n.Machine, Network: &args.Network,
			Address:       pulumi.String(n.Address),
			Protect:       args.Protect && n.isControlPlane(),
			Configuration: configurations[n.Role],
			Patches:       nodePatches(args, n, c.secrets),
		}, turn)
		if err != nil {
			return err
		}

		queue.add(n, node.vm)

		if n.isControlPlane() {
			configured = []pulumi.Resource{node.applied}
			updated = append(updated, detached(ctx, node.applied.URN()))
		}

		c.nodes = append(c.nodes, node)
	}

	return nil
}

// keptInputs are those of a node's configuration that stay as they were applied last: where it is skipped, all that
// follow the cluster, and where it does not answer, the client, which no machine is to be configured for.
func (c *TalosCluster) keptInputs(n ClusterNode) []string {
	switch {
	case n.isSkipped():
		return []string{"machineConfigurationInput", "configPatches", "clientConfiguration"}
	case c.silent[n.Name]:
		return []string{"clientConfiguration"}
	default:
		return nil
	}
}

// makeNode makes a node, as a GPU worker where it has GPUs. A control plane that gains or loses its GPUs stays the same
// machine.
func (c *TalosCluster) makeNode(ctx *pulumi.Context, n ClusterNode, args TalosNodeArgs, turn turn) (*TalosNode, error) {
	opts := []pulumi.ResourceOption{pulumi.Parent(c)}
	if len(n.GPUs) > 0 {
		worker, err := newGPUWorker(ctx, n.Name, GPUWorkerArgs{Node: args, GPUs: n.GPUs, Driver: n.Driver}, turn, opts...)
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

	return newTalosNode(ctx, n.Name, args, turn, opts...)
}

// cloneQueue bounds the clones under way at once by having each wait for the one clonesAtOnce before it on the same
// datastore of the same host. It holds one cluster's machines only: a wait across clusters would bind one cluster's
// removal to the other.
type cloneQueue map[ImageStore][]pulumi.Resource

func (q cloneQueue) before(n ClusterNode) []pulumi.Resource {
	made := q[storeOf(n)]
	if n.Machine.Template == nil || len(made) < clonesAtOnce {
		return nil
	}

	return []pulumi.Resource{made[len(made)-clonesAtOnce]}
}

func (q cloneQueue) add(n ClusterNode, vm pulumi.Resource) {
	if n.Machine.Template != nil {
		q[storeOf(n)] = append(q[storeOf(n)], vm)
	}
}

func storeOf(n ClusterNode) ImageStore {
	return ImageStore{Node: n.Machine.Node, Datastore: n.Machine.DiskPool}
}
