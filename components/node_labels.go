package components

import (
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
)

// makeMarks gives nodes that run the labels and taints of their configuration: a kubelet registers its node with them
// and may not change the taints later. It runs again when nodes come or go or their labels or taints change, beside the
// health gate, which names better what keeps a node from being registered.
func (c *TalosCluster) makeMarks(ctx *pulumi.Context, name string, args TalosClusterArgs) error {
	// Before a machine has its new configuration, Talos would set the labels of the old one again.
	after := []pulumi.Resource{c.bootstrap}
	for _, node := range c.nodes {
		after = append(after, node.applied)
	}

	common := request.Common{ControlPlanes: talosopsNodes(args.controlPlanes())}
	_, err := talosops{
		verb: "mark",
		request: func(_, kubeconfig string) any {
			return request.Mark{Common: common, Marks: args.planned.marks, Kubeconfig: kubeconfig}
		},
		kubeconfig: c.Kubeconfig,
	}.make(ctx, name+"-marked", pulumi.Parent(c), pulumi.DependsOn(after))

	return err
}

// planMarks finds what the configuration of a node says about its labels and taints, the user's patches included.
func planMarks(c talos.ClusterConfig, n talos.NodeConfig) (request.Marks, error) {
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
