package components

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/vmlookup"
)

// registerKubernetesUpgrade upgrades a running cluster's Kubernetes before any machine configuration names the version:
// applying that would upgrade kubelets and API servers together, without a check for APIs that the version removes. For
// a new cluster, or one that runs the version, it does nothing. It knows only the control planes, so that changes of
// workers do not run it.
func (c *TalosCluster) registerKubernetesUpgrade(ctx *pulumi.Context, name string, args TalosClusterArgs) error {
	req := request.Kubernetes{
		Common: request.Common{
			ControlPlanes: requestNodes(args.controlPlanes()), HealthCheck: args.HealthCheck,
			Maintenance: args.maintenanceRequest(ctx),
		},
		KubernetesVersion: args.KubernetesVersion,
		Backup:            args.Backup,
	}

	req.Bootstrapped, _ = vmlookup.FromContext(ctx).WasBootstrapped(args.Name)

	for _, n := range args.workers() {
		if n.isSkipped() {
			req.Skip = append(req.Skip, n.Name)
		}
	}

	hook, err := c.registerReachableHook(ctx, name+"-control-planes-there", name, args.controlPlanes())
	if err != nil {
		return err
	}

	c.kubernetesUpgrade, err = talosopsCall{
		verb: "kubernetes",
		request: func(talosconfig, _ string) any {
			req.Talosconfig = talosconfig

			return req
		},
		talosconfig: c.controlTalosconfig, keepRequest: c.keepRequest(),
		trigger: vmlookup.FromContext(ctx).VersionsTrigger(args.Name),
	}.register(ctx, name+"-kubernetes", pulumi.Parent(c), pulumi.DependsOn([]pulumi.Resource{c.talosUpgrade}), hook)

	return err
}
