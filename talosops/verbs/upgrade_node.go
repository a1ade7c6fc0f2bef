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

// turnOf is one node's upgrade.
type turnOf struct {
	*upgrader
	surveyed

	began   time.Time
	before  cluster.NodeState
	boot    string // id of the boot that the upgrade ends
	offered []request.GPUs
	told    <-chan string // why a sequence of the machine has failed
	failed  string        // what was told
}

// bring brings one node to what it has to run.
func (u *upgrader) bring(ctx context.Context, s surveyed) error {
	ctx, done := context.WithCancel(ctx) // ends what the turn has begun to listen to
	defer done()

	t := &turnOf{upgrader: u, surveyed: s, began: u.now()}

	t.step("waits its turn: the cluster has to be whole")

	if err := t.awaitSteady(ctx); err != nil {
		return err
	}

	if t.runs.is(t.wanted) { // an interrupted run got this far
		return t.finish(ctx)
	}

	t.step(t.surveyed.step())

	change := t.upgrade
	if release, err := talos.ReleaseOf(t.runs.talos); err == nil && release.Lifecycle {
		change = t.installAndRestart
	}

	if err := change(ctx); err != nil {
		return err
	}

	if err := t.arrive(ctx); err != nil {
		return err
	}

	u.note(s.Name)

	return t.finish(ctx)
}

// note adds a node to the result.
func (u *upgrader) note(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()

	u.result.Upgraded = append(u.result.Upgraded, name)
	slices.Sort(u.result.Upgraded)
}

// step says what happens to the node now, and how long it took to get here.
func (t *turnOf) step(what string) {
	t.Print(fmt.Sprintf("%s: %s: %s (%s)", t.Name, upgradeCheck, what, t.since(t.began)))
}

// awaitSteady waits until the cluster is whole, and notes what has to be again afterwards.
func (t *turnOf) awaitSteady(ctx context.Context) error {
	nodes, _, err := t.ListNodes(ctx)
	if err != nil {
		return err
	}

	// Without a CNI no node is Ready.
	t.before = cluster.NodeState{
		Node: t.Node, Registered: true, Ready: slices.ContainsFunc(nodes, func(n kube.Node) bool { return n.Ready }),
	}

	if err := t.Steady(ctx, t.before); err != nil {
		return err
	}

	if err := t.ask(ctx); err != nil {
		return err
	}

	now, _, err := t.Cluster.Node(ctx, t.Node)
	if err != nil {
		return err
	}

	for _, e := range t.req.GPUs {
		if e.Node == t.Name && now != nil && now.Offers(cluster.ResourceOf(e)) >= e.Count {
			t.offered = append(t.offered, e)
		}
	}

	return nil
}

// ask waits until the machine says what it runs, and in which boot: its power may be away for a moment.
func (t *turnOf) ask(ctx context.Context) error {
	answered := checks.Goal{
		Before: t.Name + " answered", Missed: t.Name + " does not answer", Remedy: "start or repair it",
	}

	return t.Until(ctx, answered, func(ctx context.Context) checks.Report {
		var err error
		if t.runs, err = t.imageOf(ctx, t.Node); err == nil {
			t.boot, err = t.Talos.BootID(ctx, t.Address)
		}

		if err != nil {
			return cluster.Silent(t.Node, upgradeCheck, err)
		}

		return nil
	})
}

// vacate has the node's pods go elsewhere, where there is an elsewhere.
func (t *turnOf) vacate(ctx context.Context) error {
	nodes, _, err := t.ListNodes(ctx)
	if err != nil {
		return err
	}

	if !slices.ContainsFunc(nodes, func(n kube.Node) bool { return n.Name != t.Name && !n.Unschedulable }) {
		t.step("is not drained: no other node takes its pods")

		return nil
	}

	if err := t.Evacuate(ctx, t.Node); err != nil {
		return err
	}

	t.step("is drained")

	return nil
}

// giveUpLead has another member lead etcd before this one goes, so that writes wait for no election.
func (t *turnOf) giveUpLead(ctx context.Context) {
	if !t.controlPlane || len(t.req.ControlPlanes) == 1 {
		return
	}

	if err := t.Talos.ForfeitLeadership(ctx, t.Address); err != nil { // another member is elected anyway, only later
		t.step("does not give up the lead of etcd: " + talosapi.Cause(err))
	}
}

// arrive waits until the machine has booted, and sees that it runs the new image.
func (t *turnOf) arrive(ctx context.Context) error {
	arrived := checks.Goal{
		Before: t.Name + " ran Talos " + t.wanted.Talos, Missed: t.Name + " does not run Talos " + t.wanted.Talos,
		Remedy: "look at its console, or at talosctl --nodes " + t.Address + " dmesg; `talosctl --nodes " + t.Address +
			" reboot` ends an installation that hangs, and boots what ran before",
	}

	var last image

	fell := false

	err := t.Until(ctx, arrived, func(ctx context.Context) (r checks.Report) {
		last, fell, r = t.lookAtBoot(ctx)

		return r
	})
	if err != nil || !fell {
		if err == nil {
			t.step("runs Talos " + last.talos + ", schematic " + short(last.schematic))
		}

		return err
	}

	why := "the new image did not start, and Talos went back to the one before, or the machine was restarted before it was " +
		"installed"
	if t.failed != "" {
		why = "its installation failed (" + t.failed + ")"
	}

	err = fmt.Errorf("%s has booted and runs Talos %s, schematic %s again, instead of %s, schematic %s: %s; look at its console "+
		"and at talosctl --nodes %s dmesg, then run the same again",
		t.Name, last.talos, short(last.schematic), t.wanted.Talos, short(t.wanted.Schematic), why, t.Address)

	// It takes pods again if it is as healthy as before.
	return errors.Join(err, t.back(ctx))
}

// lookAtBoot says what a machine misses on its way, and whether it runs its former image after another boot.
func (t *turnOf) lookAtBoot(ctx context.Context) (now image, fell bool, r checks.Report) {
	open := func(problem string) checks.Report { return checks.Open(t.Name, upgradeCheck, problem, "") }

	id, err := t.Talos.BootID(ctx, t.Address)
	if err != nil {
		return now, false, cluster.Silent(t.Node, upgradeCheck, err)
	}

	select {
	case t.failed = <-t.told:
	default:
	}

	switch {
	case id == t.boot && t.failed != "":
		return now, false, open("has not installed " + t.wanted.Talos + ", and boots what ran before: " + t.failed)
	case id == t.boot:
		return now, false, open("has not shut down yet, to boot " + t.wanted.Talos)
	}

	now, err = t.imageOf(ctx, t.Node)

	switch {
	case err != nil:
		return now, false, cluster.Silent(t.Node, upgradeCheck, err)
	case now.is(t.wanted):
		return now, false, nil
	// Of a machine that has just booted, the schematic may not be known yet.
	case now == t.runs && (now.talos != t.wanted.Talos || now.schematic != talosapi.NoSchematic):
		return now, true, nil
	default:
		return now, false, open(fmt.Sprintf("runs Talos %s, schematic %s", now.talos, short(now.schematic)))
	}
}

// finish sees that the cluster is whole again and the node as it was, and lets it take pods.
func (t *turnOf) finish(ctx context.Context) error {
	if err := t.Steady(ctx, t.before); err != nil {
		return err
	}

	if err := t.awaitGPUs(ctx); err != nil {
		return err
	}

	if err := t.Uncordon(ctx, t.Node); err != nil {
		return err
	}

	t.step("is done")

	return nil
}

// awaitGPUs waits until the node offers the GPUs that it offered before.
func (t *turnOf) awaitGPUs(ctx context.Context) error {
	if len(t.offered) == 0 {
		return nil
	}

	offers := checks.Goal{
		Before: t.Name + " offered its GPUs again", Missed: t.Name + " does not offer its GPUs again",
		Remedy: "repair what is named",
	}

	return t.Until(ctx, offers, func(ctx context.Context) checks.Report {
		nodes, address, err := t.ListNodes(ctx)
		if err != nil {
			return cluster.Unlisted(t.Name, cluster.GPUCheck, err)
		}

		return t.CheckGPUs(ctx, t.offered, t.req.nodes(), nodes, address)
	})
}

// back lets a node take pods that runs what it ran before, once the cluster is whole.
func (t *turnOf) back(ctx context.Context) error {
	if err := t.Steady(ctx, t.before); err != nil {
		return fmt.Errorf("%s stays cordoned: %w", t.Name, err)
	}

	return t.Uncordon(ctx, t.Node)
}
