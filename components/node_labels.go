package components

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/request"
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

	marks := make([]request.Marks, 0, len(args.Nodes))
	for i, n := range args.Nodes {
		m := args.planned.nodes[i].Marks
		marks = append(marks, request.Marks{Node: n.Name, Labels: m.Labels, Taints: m.Taints, ProviderID: m.ProviderID})
	}

	common := request.Common{ControlPlanes: requestNodes(args.controlPlanes())}
	_, err := talosopsCall{
		verb: "mark",
		request: func(_, kubeconfig string) any {
			return request.Mark{Common: common, Marks: marks, Kubeconfig: kubeconfig}
		},
		kubeconfig: c.Kubeconfig,
	}.register(ctx, name+"-marked", pulumi.Parent(c), pulumi.DependsOn(dependencies))

	return err
}
