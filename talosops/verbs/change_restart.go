package verbs

import (
	"cmp"
	"context"
	"strings"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/talosapi"
)

// restart reboots a machine whose configuration takes effect only after that.
func (c *change) restart(ctx context.Context) error {
	n := c.req.Node
	goal := checks.Goal{
		Before: n.Name + " had restarted", Missed: n.Name + " cannot be restarted",
		Remedy: "see talosctl --nodes " + n.Address.String() + " dmesg; restart it by talosctl --nodes " + n.Address.String() + " reboot",
	}

	var before string

	err := c.Until(ctx, goal, func(ctx context.Context) checks.Report {
		boot, err := c.Talos.BootID(ctx, n.Address)
		if before = cmp.Or(before, boot); err == nil && boot == before {
			err = c.Talos.Reboot(ctx, n.Address, true) // it may have a GPU, which needs a power cycle
		}

		if err != nil {
			return checks.Problem(n.Name, cluster.BootCheck, "cannot be restarted", talosapi.Cause(err))
		}

		return nil
	})
	if err != nil {
		return err
	}

	c.PrintNote(ctx, n.Name, cluster.BootCheck,
		"restarts, because these take effect only then: "+strings.Join(c.pending, ", "))

	return c.AwaitReboot(ctx, n, before)
}

// annotateRestart records on a node the boot id after which its configuration takes effect; empty removes the record.
func (c *change) annotateRestart(ctx context.Context, n request.Node, boot string) error {
	what, value := "annotated as waiting for a restart", &boot
	if boot == "" {
		what, value = "cleared of its restart annotation", nil
	}

	return c.PatchNode(ctx, n, what, func(now kube.Node) *kube.NodePatch {
		if now.Annotations[cluster.RestartAnnotation] == boot {
			return nil
		}

		patch := &kube.NodePatch{}
		patch.Metadata.Annotations = map[string]*string{cluster.RestartAnnotation: value}

		return patch
	})
}

// hasPendingRestart reports whether an interrupted run left a configuration that still needs a restart. If so, this
// change restarts the machine.
func (c *change) hasPendingRestart(ctx context.Context) bool {
	n := c.req.Node

	now, _, err := c.FindNode(ctx, n)
	if err != nil || now == nil || now.Annotations[cluster.RestartAnnotation] == "" {
		return false
	}

	boot, err := c.Talos.BootID(ctx, n.Address)
	if err != nil {
		return false
	}

	if now.Annotations[cluster.RestartAnnotation] != boot { // it has restarted since
		if err := c.annotateRestart(ctx, n, ""); err != nil {
			c.PrintNote(ctx, n.Name, cluster.NodeCheck, "stays annotated as waiting for a restart: "+err.Error())
		}

		return false
	}

	c.req.Restart, c.pending = true, []string{"what an interrupted run has changed"}

	return true
}
