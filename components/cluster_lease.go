package components

import (
	"errors"
	"fmt"
	"io"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/internals"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talosopsexec"
	"talos-proxmox/internal/vmlookup"
)

// acquireLease waits until no other run works on a cluster that was bootstrapped, and keeps other runs away until this
// one ends; nothing of the cluster is registered before. Pulumi's lock covers one backend only, so runs of two backends
// would meet in the cluster. The program lives until the last deletion is done, and then tells talosops how the run has
// ended ([talosopsexec.Ending]). That it was killed, talosops notices by the end of its input, or by the cancelled
// context if the run has no process of its own.
func (c *TalosCluster) acquireLease(ctx *pulumi.Context, _ string, args TalosClusterArgs) error {
	if bootstrapped, _ := vmlookup.FromContext(ctx).WasBootstrapped(args.Name); !bootstrapped || ctx.DryRun() {
		return nil
	}

	talosconfig, err := internals.UnsafeAwaitOutput(ctx.Context(), c.controlTalosconfig)
	if err != nil {
		return fmt.Errorf("unable to read the talosconfig: %w", err)
	}

	req := request.Hold{
		Common: request.Common{
			Interval: changeInterval, ControlPlanes: requestNodes(args.controlPlanes()),
			Maintenance: args.maintenanceRequest(ctx),
		},
		Stack: fullStackName(ctx),
	}
	req.Talosconfig, _ = talosconfig.Value.(string)

	ending := talosopsexec.EndingOf(ctx)

	session, err := talosopsexec.Start(ctx, "hold", req, func(line string) {
		if !ending.Note(line) {
			_ = ctx.Log.Info(line, &pulumi.LogArgs{Resource: c})
		}
	})
	if err != nil {
		return err
	}

	var ready request.Ready
	if err := session.Receive(&ready); err != nil {
		return err
	}

	ended := make(chan error, 1)

	go func() { // talosops writes nothing more until it ends
		err := session.Receive(&ready)
		if err != nil && ctx.Context().Err() == nil {
			c.leaseLost.Store(&err)
		}

		ended <- err
	}()

	ending.Add(func(failed bool) error {
		outcome := request.Succeeded
		if failed {
			outcome = request.Failed
		}

		if err := session.Send(request.Held{Outcome: outcome}); err != nil {
			return nil // it has ended already, and its reason was reported
		}

		if err := <-ended; !errors.Is(err, io.EOF) {
			return err
		}

		return nil
	})

	return nil
}
