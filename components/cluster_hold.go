package components

import (
	"fmt"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/internals"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talosopsexec"
	"talos-proxmox/internal/vmlookup"
)

// holdCluster waits until no other run works on a cluster that was bootstrapped, and keeps other runs away until this
// one ends: nothing of the cluster is registered before. Pulumi's lock is of one backend, and runs of two meet in the
// cluster alone. The program lives until the last deletion is done, and talosops hears of its end by the end of its
// input, or the cancelled context of a run whose program is not a process of its own.
func (c *TalosCluster) holdCluster(ctx *pulumi.Context, _ string, args TalosClusterArgs) error {
	if begun, _ := vmlookup.Of(ctx).HasBegun(args.Name); !begun || ctx.DryRun() {
		return nil
	}

	talosconfig, err := internals.UnsafeAwaitOutput(ctx.Context(), c.control)
	if err != nil {
		return fmt.Errorf("unable to read the talosconfig: %w", err)
	}

	asked := request.Hold{
		Common: request.Common{Interval: changeInterval, ControlPlanes: talosopsNodes(args.controlPlanes())},
		Stack:  strings.Join([]string{ctx.Organization(), ctx.Project(), ctx.Stack()}, "/"),
	}
	asked.Talosconfig, _ = talosconfig.Value.(string)

	session, err := talosopsexec.Start(ctx, "hold", asked, func(line string) {
		_ = ctx.Log.Info(line, &pulumi.LogArgs{Resource: c})
	})
	if err != nil {
		return err
	}

	var ready request.Ready
	if err := session.Receive(&ready); err != nil {
		return err
	}

	go func() { // it says nothing more until it ends
		if err := session.Receive(&ready); err != nil && ctx.Context().Err() == nil {
			c.taken.Store(&err)
		}
	}()

	return nil
}
