package components

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/request"
)

// registerAccess gives groups of the identity provider their ClusterRoles, and takes them away when they are not set
// any more; with the cluster's secrets the whole cluster is deleted.
func (c *TalosCluster) registerAccess(ctx *pulumi.Context, name string, args TalosClusterArgs) error {
	if args.APIServer == nil || args.APIServer.OIDC == nil || len(args.APIServer.OIDC.ClusterRoles) == 0 {
		return nil
	}

	_, err := talosopsCall{
		verb: "access", removes: true,
		request: func(_, kubeconfig string) any {
			return request.Access{
				Common:       request.Common{ControlPlanes: requestNodes(args.controlPlanes())},
				ClusterRoles: args.APIServer.OIDC.Bindings(), Kubeconfig: kubeconfig,
			}
		},
		kubeconfig: c.Kubeconfig,
	}.register(
		ctx, name+"-access",
		pulumi.Parent(c), pulumi.DependsOn([]pulumi.Resource{c.bootstrap}), pulumi.DeletedWith(c.secrets),
	)

	return err
}
