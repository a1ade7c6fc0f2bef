package verbs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/talosapi"
)

// nodeUpgrade is the upgrade of one node.
type nodeUpgrade struct {
	*upgrader
	surveyed

	started     time.Time
	before      cluster.NodeState
	bootID      string // before the upgrade
	offeredGPUs []request.GPUs
	failures    <-chan string // receives why a sequence of the machine failed
	failure     string        // as received from failures
}

// upgradeNode upgrades one node to its planned image.
func (u *upgrader) upgradeNode(ctx context.Context, s surveyed) error {
	ctx, cancel := context.WithCancel(ctx) // stops listening for failures
	defer cancel()

	t := &nodeUpgrade{upgrader: u, surveyed: s, started: u.now()}

	t.printStep("waits until the cluster is steady")

	if err := t.awaitSteady(ctx); err != nil {
		return err
	}

	if t.runs.matches(t.wanted) { // an interrupted run got this far
		return t.finish(ctx)
	}

	if err := t.RequireMaintenance(t.Name + " is not upgraded"); err != nil {
		return err
	}

	t.printStep(t.changes())

	change := t.upgrade
	if release, err := talos.ReleaseOf(t.runs.talos); err == nil && release.LifecycleAPI {
		change = t.installAndRestart
	}

	if err := change(ctx); err != nil {
		return err
	}

	if err := t.awaitImage(ctx); err != nil {
		return err
	}

	u.addUpgraded(s.Name)

	return t.finish(ctx)
}

// addUpgraded adds a node to the result.
func (u *upgrader) addUpgraded(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()

	u.result.Upgraded = append(u.result.Upgraded, name)
	slices.Sort(u.result.Upgraded)
}

// printStep prints what happens to the node, and the time since its upgrade began.
func (t *nodeUpgrade) printStep(what string) {
	t.Print(fmt.Sprintf("%s: %s: %s (%s)", t.Name, upgradeCheck, what, t.elapsed(t.started)))
}

// awaitSteady waits until the cluster is steady, and records the state to which the node must return.
func (t *nodeUpgrade) awaitSteady(ctx context.Context) error {
	nodes, _, err := t.ListNodes(ctx)
	if err != nil {
		return err
	}

	// Without a CNI no node is Ready.
	t.before = cluster.NodeState{
		Node: t.Node, Registered: true, Ready: slices.ContainsFunc(nodes, func(n kube.Node) bool { return n.Ready }),
	}

	if err := t.AwaitSteady(ctx, t.before); err != nil {
		return err
	}

	if err := t.queryNode(ctx); err != nil {
		return err
	}

	now, _, err := t.FindNode(ctx, t.Node)
	if err != nil {
		return err
	}

	for _, e := range t.req.GPUs {
		if e.Node == t.Name && now != nil && now.Offers(cluster.GPUResource(e)) >= e.Count {
			t.offeredGPUs = append(t.offeredGPUs, e)
		}
	}

	return nil
}

// queryNode waits for the machine's image and boot id: it may lack power for a moment.
func (t *nodeUpgrade) queryNode(ctx context.Context) error {
	goal := checks.Goal{
		Before: t.Name + " answered", Missed: t.Name + " does not answer", Remedy: "start or repair it",
	}

	return t.Until(ctx, goal, func(ctx context.Context) checks.Report {
		var err error
		if t.runs, err = t.readImage(ctx, t.Node); err == nil {
			t.bootID, err = t.Talos.BootID(ctx, t.Address)
		}

		if err != nil {
			return cluster.Unreachable(t.Node, upgradeCheck, err)
		}

		return nil
	})
}

// drain drains the node if another one can take its pods.
func (t *nodeUpgrade) drain(ctx context.Context) error {
	nodes, _, err := t.ListNodes(ctx)
	if err != nil {
		return err
	}

	if !slices.ContainsFunc(nodes, func(n kube.Node) bool { return n.Name != t.Name && !n.Unschedulable }) {
		t.printStep("is not drained: no other node takes its pods")

		return nil
	}

	if err := t.Drain(ctx, t.Node); err != nil {
		return err
	}

	t.printStep("is drained")

	return nil
}

// forfeitLeadership lets another member lead etcd before this one stops, so that writes do not wait for an election.
func (t *nodeUpgrade) forfeitLeadership(ctx context.Context) {
	if !t.controlPlane || len(t.req.ControlPlanes) == 1 {
		return
	}

	if err := t.Talos.ForfeitLeadership(ctx, t.Address); err != nil { // etcd elects another leader anyway, only later
		t.printStep("does not forfeit its leadership of etcd: " + talosapi.Cause(err))
	}
}

// awaitImage waits until the machine has rebooted and runs the new image.
func (t *nodeUpgrade) awaitImage(ctx context.Context) error {
	goal := checks.Goal{
		Before: t.Name + " ran Talos " + t.wanted.Talos, Missed: t.Name + " does not run Talos " + t.wanted.Talos,
		Remedy: "look at its console, or at talosctl --nodes " + t.Address.String() + " dmesg; `talosctl --nodes " + t.Address.String() +
			" reboot` ends an installation that hangs, and boots what ran before",
	}

	var last image

	reverted := false

	err := t.Until(ctx, goal, func(ctx context.Context) (r checks.Report) {
		last, reverted, r = t.checkBoot(ctx)

		return r
	})
	if err != nil || !reverted {
		if err == nil {
			t.printStep("runs Talos " + last.talos + ", schematic " + shortID(last.schematic))
		}

		return err
	}

	why := "the new image did not start, and Talos went back to the one before, or the machine was restarted before it was " +
		"installed"
	if t.failure != "" {
		why = "its installation failed (" + t.failure + ")"
	}

	err = fmt.Errorf("%s has booted and runs Talos %s, schematic %s again, instead of %s, schematic %s: %s; look at its console "+
		"and at talosctl --nodes %s dmesg, then run the same again",
		t.Name, last.talos, shortID(last.schematic), t.wanted.Talos, shortID(t.wanted.Schematic), why, t.Address)

	// Its node is uncordoned if it is as healthy as before.
	return errors.Join(err, t.uncordonReverted(ctx))
}

// checkBoot checks the machine's progress, and reports whether it has rebooted into its former image.
func (t *nodeUpgrade) checkBoot(ctx context.Context) (now image, reverted bool, r checks.Report) {
	open := func(problem string) checks.Report { return checks.Problem(t.Name, upgradeCheck, problem, "") }

	id, err := t.Talos.BootID(ctx, t.Address)
	if err != nil {
		return now, false, cluster.Unreachable(t.Node, upgradeCheck, err)
	}

	select {
	case t.failure = <-t.failures:
	default:
	}

	switch {
	case id == t.bootID && t.failure != "":
		return now, false, open("has not installed " + t.wanted.Talos + ", and boots what ran before: " + t.failure)
	case id == t.bootID:
		return now, false, open("has not shut down yet, to boot " + t.wanted.Talos)
	}

	now, err = t.readImage(ctx, t.Node)

	switch {
	case err != nil:
		return now, false, cluster.Unreachable(t.Node, upgradeCheck, err)
	case now.matches(t.wanted):
		return now, false, nil
	// Right after a boot, the schematic may not be known yet.
	case now == t.runs && (now.talos != t.wanted.Talos || now.schematic != talosapi.NoSchematic):
		return now, true, nil
	default:
		return now, false, open(fmt.Sprintf("runs Talos %s, schematic %s", now.talos, shortID(now.schematic)))
	}
}

// finish waits until the cluster is steady again and the node as it was, and uncordons it.
func (t *nodeUpgrade) finish(ctx context.Context) error {
	if err := t.AwaitSteady(ctx, t.before); err != nil {
		return err
	}

	if err := t.awaitGPUs(ctx); err != nil {
		return err
	}

	if err := t.Uncordon(ctx, t.Node); err != nil {
		return err
	}

	t.printStep("is done")

	return nil
}

// awaitGPUs waits until the node offers the GPUs that it offered before.
func (t *nodeUpgrade) awaitGPUs(ctx context.Context) error {
	if len(t.offeredGPUs) == 0 {
		return nil
	}

	goal := checks.Goal{
		Before: t.Name + " offered its GPUs again", Missed: t.Name + " does not offer its GPUs again",
		Remedy: "repair what is named",
	}

	return t.Until(ctx, goal, func(ctx context.Context) checks.Report {
		nodes, address, err := t.ListNodes(ctx)
		if err != nil {
			return cluster.NodesUnknown(t.Name, cluster.GPUCheck, err)
		}

		return t.CheckGPUs(ctx, t.offeredGPUs, t.req.nodes(), nodes, address)
	})
}

// uncordonReverted uncordons a node that runs its former image, once the cluster is steady.
func (t *nodeUpgrade) uncordonReverted(ctx context.Context) error {
	if err := t.AwaitSteady(ctx, t.before); err != nil {
		return fmt.Errorf("%s stays cordoned: %w", t.Name, err)
	}

	return t.Uncordon(ctx, t.Node)
}
