package components

import (
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
)

// registerNodeMarks sets the labels and taints of the configurations on running nodes: a kubelet registers its node
// with them, but may not change taints later. It runs again when nodes, labels or taints change, in parallel with the
// health gate, whose errors explain better why a node is not registered.
func (c *TalosCluster) registerNodeMarks(ctx *pulumi.Context, name string, args TalosClusterArgs) error {
	// Until a machine has its new configuration, Talos would set the labels of the old one again.
	dependencies := []pulumi.Resource{c.bootstrap}
	for _, node := range c.nodes {
		dependencies = append(dependencies, node.configuration)
	}

	common := request.Common{ControlPlanes: requestNodes(args.controlPlanes())}
	_, err := talosopsCall{
		verb: "mark",
		request: func(_, kubeconfig string) any {
			return request.Mark{Common: common, Marks: args.planned.marks, Kubeconfig: kubeconfig}
		},
		kubeconfig: c.Kubeconfig,
	}.register(ctx, name+"-marked", pulumi.Parent(c), pulumi.DependsOn(dependencies))

	return err
}

// nodeMarks returns the labels and taints of a node's configuration, including those of the user's patches.
func nodeMarks(c talos.ClusterConfig, n talos.NodeConfig) (request.Marks, error) {
	marks, err := talos.MarksOf(c, n)
	if err != nil {
		return request.Marks{}, fmt.Errorf("machine configuration of %q: %w", n.Name, err)
	}

	if n.Role == RoleWorker {
		for key := range marks.Labels {
			if spec.RestrictedLabel(key) {
				return request.Marks{}, fmt.Errorf("machine configuration of %q: machine.nodeLabels: a patch sets a label that Kubernetes lets no worker give itself, "+
					"and the node would lose its other labels with it: use your own prefix, such as example.org/, or set it with kubectl", n.Name)
			}
		}
	}

	return request.Marks{
		Node: n.Name, Labels: marks.Labels, Taints: marks.Taints, ProviderID: marks.ProviderID,
	}, nil
}
