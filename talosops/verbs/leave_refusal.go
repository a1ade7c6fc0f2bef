package verbs

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/talosapi"
	"talos-proxmox/talosops/verb"
)

// onlyCopyError says why a node does not leave a cluster whose other control planes wait without etcd data. The node
// itself may have the only copy.
func onlyCopyError(ctx context.Context, c *cluster.Cluster, req *leaveRequest) error {
	name, others := req.Node.Name, strings.Join(verb.SortedNames(req.otherControlPlanes()), ", ")

	if req.isControlPlane() {
		f, exists := c.CheckEtcd(ctx, req.Node)

		switch {
		case exists:
			return fmt.Errorf("%s is left as it is: it has the cluster's only etcd data, and the other control planes (%s) have "+
				"none and wait. Restore etcd first: talos-proxmox restore saves this data before it changes anything "+
				"(docs/recovery.md#the-majority-of-etcd-is-lost); then run the same again", name, others)
		case f.Problem != "":
			return fmt.Errorf("%s is left as it is: the other control planes (%s) have no etcd data and wait, and it may have "+
				"the only data: %s. Start or repair it, then restore etcd with talos-proxmox restore, which saves its data; if that is "+
				"gone for good, remove its VM on Proxmox and run pulumi up --refresh (docs/recovery.md#the-majority-of-etcd-is-lost)",
				name, others, f)
		}
	}

	return fmt.Errorf("%s is left as it is: %w; to create a broken machine anew meanwhile, remove its VM on Proxmox and run "+
		"pulumi up --refresh", name, dataLostError(req.ControlPlanes))
}

// dataLostError says that a cluster that was bootstrapped has no etcd data, and what to do.
func dataLostError(controlPlanes []request.Node) error {
	return fmt.Errorf("its cluster was bootstrapped, and no control plane (%s) has etcd data, so nobody knows what runs. "+
		"Restore a snapshot with talos-proxmox restore, or set bootstrapEmpty of the cluster in the stack file "+
		"(docs/recovery.md#all-control-planes-are-lost), then run the same again",
		strings.Join(verb.SortedNames(controlPlanes), ", "))
}

// refusesCredentials reports whether the request's credentials are too old: a machine refuses the client certificate,
// or no machine has a certificate of its authority. A machine in maintenance mode has none either.
func refusesCredentials(r checks.Report) bool {
	return slices.ContainsFunc(r, func(f checks.Finding) bool { return talosapi.IsRefusedClient(f.Detail) }) ||
		!slices.ContainsFunc(r, func(f checks.Finding) bool { return !talosapi.IsUnknownServer(f.Detail) })
}

func credentialsError(n request.Node, r checks.Report) error {
	return fmt.Errorf("%s is left as it is: the control planes do not accept the credentials that the stack's state has for its "+
		"removal, because they have expired, or the certificate authority was replaced (%s). Run pulumi up once with %[1]s in "+
		"the stack file, which renews them, then remove it again", n.Name, r[0])
}
