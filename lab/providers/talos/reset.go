package talos

import (
	"context"
	"fmt"
	"time"

	"github.com/pulumi/pulumi-go-provider/infer"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const resetPoll = 250 * time.Millisecond

// Delete resets the machine where onDestroy says so; otherwise the machine keeps its configuration.
func (r *applyResource) Delete(
	ctx context.Context, request infer.DeleteRequest[applyState],
) (infer.DeleteResponse, error) {
	o := request.State.OnDestroy.withDefaults()
	if o == nil || !*o.Reset {
		return infer.DeleteResponse{}, nil
	}

	ctx, cancel := context.WithTimeout(ctx, request.State.Timeouts.delete())
	defer cancel()

	err := request.State.target().call(ctx, func(ctx context.Context, c *client.Client) error {
		return c.ResetGeneric(ctx, &machine.ResetRequest{
			Graceful: *o.Graceful,
			Reboot:   *o.Reboot,
			SystemPartitionsToWipe: []*machine.ResetPartitionSpec{
				{Label: "STATE", Wipe: true},
				{Label: "EPHEMERAL", Wipe: true},
			},
		})
	})
	if err != nil {
		return infer.DeleteResponse{}, fmt.Errorf(
			"resetting machine %s: %w: set onDestroy.reset to false to delete without a reset", request.State.Node, err,
		)
	}

	return infer.DeleteResponse{}, request.State.target().waitReset(ctx, *o.Reboot)
}

// waitReset waits until the machine no longer accepts the cluster's certificate: it is off, or in maintenance mode.
func (t target) waitReset(ctx context.Context, reboot bool) error {
	secure, err := t.secure(ctx)
	if err != nil {
		return err
	}
	defer secure.Close() //nolint:errcheck

	insecure, err := t.insecure(ctx)
	if err != nil {
		return err
	}
	defer insecure.Close() //nolint:errcheck

	nodeCtx := client.WithNode(ctx, t.node)

	for {
		if _, err := insecure.Disks(nodeCtx); err == nil {
			return nil
		}

		if _, err := secure.Version(nodeCtx); err != nil && !reboot && status.Code(err) == codes.Unavailable {
			return nil
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the reset of %s: %w: look at the machine's console", t.node, ctx.Err())
		case <-time.After(resetPoll):
		}
	}
}
