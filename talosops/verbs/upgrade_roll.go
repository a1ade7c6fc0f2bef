package verbs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/kube"
)

// run upgrades all nodes that do not run their planned image.
func (u *upgrader) run(ctx context.Context) error {
	u.started = u.now()
	nodes := u.survey(ctx)
	unreachable := unreachableNodes(nodes)

	if len(unreachable) == len(nodes) {
		u.Print("no node answers: there is no cluster yet, and nothing is upgraded")

		return ctx.Err()
	}

	for _, s := range filterNodes(nodes, func(s surveyed) bool { return s.missingGPU }) {
		u.PrintNote(ctx, s.Name, upgradeCheck, "has no GPU yet, but its image has the driver: it gets that image when the upgrade runs "+
			"again (pulumi up --replace)")
	}

	if err := u.checkVersionSteps(nodes); err != nil {
		return err
	}

	bootstrapped, err := u.isBootstrapped(ctx, nodes)
	if err == nil && !bootstrapped && !u.controlPlanesUnreachable(nodes) {
		return u.notBootstrapped(nodes)
	}

	if len(unreachable) == 0 && len(differing(nodes)) == 0 && !u.hasLeftoverCordon(ctx) {
		u.Print(fmt.Sprintf("all nodes are up to date: %d", len(nodes)))

		return nil
	}

	if err := u.openCluster(ctx); err != nil {
		return err
	}

	// A dead worker must not block the upgrade of the other nodes: it is waited for at the end.
	nodes, incomplete, err := u.awaitMembers(ctx, func(s surveyed) bool { return s.controlPlane })
	if err != nil {
		return err
	}

	if err := u.checkRegistered(ctx, nodes); err != nil {
		return err
	}

	if !incomplete && !slices.ContainsFunc(nodes, surveyed.hasWork) {
		u.Print(fmt.Sprintf("all nodes are up to date: %d", len(nodes)))

		return nil
	}

	return u.WithLease(ctx, "upgrades Talos", func(ctx context.Context) error {
		if err := u.roll(ctx, nodes); err != nil || !incomplete {
			return err
		}

		return u.rollRemaining(ctx, len(nodes))
	})
}

// rollRemaining upgrades the workers that did not answer at first, after all others.
func (u *upgrader) rollRemaining(ctx context.Context, done int) error {
	nodes, _, err := u.awaitMembers(ctx, func(surveyed) bool { return true })
	if err != nil {
		return fmt.Errorf("%w\nall other nodes are up to date: %d", err, done)
	}

	if err := u.checkRegistered(ctx, nodes); err != nil {
		return err
	}

	return u.roll(ctx, nodes)
}

// hasWork reports whether the node must be upgraded or uncordoned.
func (s surveyed) hasWork() bool { return s.differs() || s.cordonedByUs }

func (u *upgrader) controlPlanesUnreachable(nodes []surveyed) bool {
	return !slices.ContainsFunc(nodes, func(s surveyed) bool { return s.controlPlane && s.err == nil })
}

// notBootstrapped handles a cluster whose creation was interrupted: its machines cannot be upgraded as members of it.
func (u *upgrader) notBootstrapped(nodes []surveyed) error {
	if u.req.Bootstrapped {
		return fmt.Errorf("nothing is upgraded: %w", dataLostError(u.req.ControlPlanes))
	}

	differ := differing(nodes)
	if len(differ) == 0 {
		u.Print("the cluster is not bootstrapped yet, and nothing is upgraded")

		return nil
	}

	return fmt.Errorf("%s runs Talos %s and has to run %s, but the cluster is not bootstrapped yet, so no node can be "+
		"upgraded: finish its creation with the version and extensions that its machines were made with, and change them then",
		differ[0].Name, differ[0].runs.talos, differ[0].wanted.Talos)
}

// hasLeftoverCordon reports whether an interrupted run left a node cordoned. A cluster that does not answer has none.
func (u *upgrader) hasLeftoverCordon(ctx context.Context) bool {
	c, err := u.connect(ctx)
	if err != nil {
		return false
	}

	nodes, _, err := c.ListNodes(ctx)

	return err == nil && slices.ContainsFunc(nodes, cluster.CordonedByUs)
}

// checkRegistered records leftover cordons, and refuses a Talos version that does not support the running Kubernetes,
// which is upgraded only after Talos.
func (u *upgrader) checkRegistered(ctx context.Context, nodes []surveyed) error {
	registered, _, err := u.ListNodes(ctx)
	if err != nil {
		return err
	}

	var problems []error

	for i := range nodes {
		now, ok := kube.Find(registered, nodes[i].Name)
		if !ok {
			continue
		}

		nodes[i].cordonedByUs = cluster.CordonedByUs(now)

		if !nodes[i].differs() || now.Kubelet == "" {
			continue
		}

		if err := talos.CheckVersions(nodes[i].wanted.Talos, now.Kubelet); err != nil {
			problems = append(problems, fmt.Errorf("%s runs Kubernetes %s: %w; change kubernetesVersion first, in an up of its own",
				now.Name, now.Kubelet, err))
		}
	}

	if len(problems) > 0 {
		return fmt.Errorf("nothing was upgraded:\n%w", errors.Join(problems...))
	}

	return nil
}

// roll upgrades control planes one by one, then workers.
func (u *upgrader) roll(ctx context.Context, nodes []surveyed) error {
	if err := u.checkVersionSteps(nodes); err != nil { // including nodes that did not answer before
		return err
	}

	todo := filterNodes(nodes, surveyed.hasWork)

	if err := u.beginMaintenance(ctx, differing(nodes)); err != nil {
		return u.withRemaining(todo, err)
	}

	if len(differing(nodes)) > 0 && !u.snapshotTaken {
		snapshot, err := takeSnapshot(ctx, u.Cluster, u.req.Backup)
		if err != nil {
			return fmt.Errorf("nothing was upgraded: %w", err)
		}

		u.snapshotTaken, u.result.Snapshot = true, snapshot
	}

	for _, s := range filterNodes(todo, func(s surveyed) bool { return s.controlPlane }) {
		if err := u.upgradeNode(ctx, s); err != nil {
			return u.withRemaining(todo, err)
		}
	}

	if err := u.upgradeWorkers(ctx, filterNodes(todo, func(s surveyed) bool { return !s.controlPlane })); err != nil {
		return u.withRemaining(todo, err)
	}

	u.Print(fmt.Sprintf("all nodes that answer are up to date: %d, of which %d were upgraded in %s",
		len(nodes), len(u.result.Upgraded), u.elapsed(u.started)))

	return nil
}

// beginMaintenance returns an error if the nodes must not be upgraded now.
func (u *upgrader) beginMaintenance(ctx context.Context, different []surveyed) error {
	if len(different) == 0 {
		return nil
	}

	subject, of := different[0].Name+" is not upgraded", cluster.Interruption{Operation: request.UpgradeTalos}
	for _, s := range different {
		of.Nodes = append(of.Nodes, s.Name)
	}

	if err := u.RequireMaintenance(subject); err != nil {
		return err
	}

	return u.BeginMaintenance(ctx, subject, of)
}

// withRemaining adds the nodes that were not upgraded to an error.
func (u *upgrader) withRemaining(todo []surveyed, err error) error {
	var remaining []string

	for _, s := range todo {
		if !slices.Contains(u.result.Upgraded, s.Name) {
			remaining = append(remaining, s.Name)
		}
	}

	if len(remaining) == 0 { // the last node is upgraded, but the cluster is not steady
		return err
	}

	return fmt.Errorf("%w\nnot upgraded: %v; the next run resumes there", err, remaining)
}

// upgradeWorkers upgrades up to parallelWorkers at a time. After a failure, no other upgrade begins.
func (u *upgrader) upgradeWorkers(ctx context.Context, todo []surveyed) error {
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		failed []error
	)

	slots := make(chan struct{}, max(u.req.ParallelWorkers, 1))

	for _, s := range todo {
		slots <- struct{}{}

		mu.Lock()
		stop := len(failed) > 0
		mu.Unlock()

		if stop {
			break
		}

		wg.Go(func() {
			defer func() { <-slots }()

			if err := u.upgradeNode(ctx, s); err != nil {
				mu.Lock()
				defer mu.Unlock()

				failed = append(failed, err)
			}
		})
	}

	wg.Wait()

	return errors.Join(failed...)
}

// elapsed returns the rounded time since began.
func (u *upgrader) elapsed(began time.Time) time.Duration {
	return u.now().Sub(began).Round(time.Second)
}
