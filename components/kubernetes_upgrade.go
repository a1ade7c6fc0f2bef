package components

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/request"
)

// makeKubernetes brings a cluster that runs to its version of Kubernetes, before any machine configuration names it:
// applying that would move kubelets and API servers together, and nothing would look at what the version removes. Where
// there is no cluster yet it is done at once, and where it runs the version as well. It knows control planes
// alone, so that it does not run for workers that come and go.
func (c *TalosCluster) makeKubernetes(ctx *pulumi.Context, name string, args TalosClusterArgs) error {
	question := request.Kubernetes{
		Common:            request.Common{ControlPlanes: talosopsNodes(args.controlPlanes()), HealthCheck: args.HealthCheck},
		KubernetesVersion: args.KubernetesVersion,
		Backup:            args.Backup,
	}

	for _, n := range args.workers() {
		if n.isSkipped() {
			question.Skip = append(question.Skip, n.Name)
		}
	}

	there, err := c.makeThere(ctx, name+"-control-planes-there", name, args.controlPlanes())
	if err != nil {
		return err
	}

	c.kubernetes, err = talosops{
		verb: "kubernetes",
		request: func(talosconfig, _ string) any {
			question.Talosconfig = talosconfig

			return question
		},
		talosconfig: c.control, kept: c.keptCalls(),
	}.make(ctx, name+"-kubernetes", pulumi.Parent(c), pulumi.DependsOn([]pulumi.Resource{c.talos}), there)

	return err
}
