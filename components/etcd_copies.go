package components

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/internals"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talosopsexec"
	"talos-proxmox/internal/vmdiff"
	"talos-proxmox/internal/vmlookup"
)

// etcdCopiesTimeout limits the query of control planes in a preview.
const etcdCopiesTimeout = "5s"

// warnOnlyCopy warns in the preview of a bootstrapped cluster if control planes wait without etcd data, and only one
// may have it: an `up --replace` of that one would lose the data, which its leave command refuses. The guard of plans
// reads the warning.
func (c *TalosCluster) warnOnlyCopy(ctx *pulumi.Context, _ string, args TalosClusterArgs) error {
	bootstrapped, _ := vmlookup.FromContext(ctx).WasBootstrapped(args.Name)
	if !bootstrapped || !ctx.DryRun() || args.controlPlaneCount() == 1 {
		return nil
	}

	talosconfig, err := internals.UnsafeAwaitOutput(ctx.Context(), c.controlTalosconfig)
	if err != nil {
		return fmt.Errorf("unable to read the talosconfig: %w", err)
	}

	req := request.Members{
		Common: request.Common{Timeout: etcdCopiesTimeout, ControlPlanes: requestNodes(args.controlPlanes())},
	}
	if req.Talosconfig, _ = talosconfig.Value.(string); req.Talosconfig == "" { // not known in this preview
		return nil
	}

	var found request.MembersResult
	if err := talosopsexec.Query(ctx, "members", req, &found); err != nil {
		return ctx.Log.Warn(fmt.Sprintf("unable to ask the control planes of cluster %s for etcd data: %v", args.Name, err),
			&pulumi.LogArgs{Resource: c})
	}

	mayHave := slices.DeleteFunc(nodeNames(args.controlPlanes()), func(name string) bool {
		return slices.Contains(found.Waiting, name)
	})

	switch {
	case len(mayHave) > 1 || len(found.Waiting) == 0:
		return nil
	case len(mayHave) == 0:
		return ctx.Log.Warn(fmt.Sprintf("no control plane of cluster %s has etcd data: restore a snapshot with "+
			"talos-proxmox restore (docs/recovery.md#all-control-planes-are-lost); until then no machine of it is changed or removed",
			args.Name), &pulumi.LogArgs{Resource: c})
	default:
		return ctx.Log.Warn(fmt.Sprintf("%s%s%s: %s have none and wait. Restore etcd "+
			"(docs/recovery.md#the-majority-of-etcd-is-lost) before anything is removed or replaced",
			mayHave[0], vmdiff.OnlyCopy, args.Name, strings.Join(found.Waiting, ", ")), &pulumi.LogArgs{Resource: c})
	}
}
