package verbs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"talos-proxmox/internal/talos"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/kube"
)

// run brings all nodes to what they have to run, and touches none that does.
func (u *upgrader) run(ctx context.Context) error {
	u.began = u.now()
	nodes := u.survey(ctx)
	silent := silentOnes(nodes)

	if len(silent) == len(nodes) {
		u.Print("no node answers: there is no cluster yet, and nothing is upgraded")

		return ctx.Err()
	}

	for _, s := range where(nodes, func(s surveyed) bool { return s.bare }) {
		u.Say(ctx, s.Name, upgradeCheck, "has no GPU yet, whose driver its image has: it gets that image when the upgrade runs "+
			"again (pulumi up --replace)")
	}

	if err := u.judgeSteps(nodes); err != nil {
		return err
	}

	if there, err := u.bootstrapped(ctx, nodes); err == nil && !there && !u.controlPlanesSilent(nodes) {
		return u.notBootstrapped(nodes)
	}

	if len(silent) == 0 && len(differing(nodes)) == 0 && !u.unfinished(ctx) {
		u.Print(fmt.Sprintf("all nodes run what they have to: %d", len(nodes)))

		return nil
	}

	if err := u.openCluster(ctx); err != nil {
		return err
	}

	// A worker that is dead keeps no other node from its upgrade: it is waited for at the end.
	nodes, more, err := u.awaitKnown(ctx, func(s surveyed) bool { return s.controlPlane })
	if err != nil {
		return err
	}

	if err := u.judgeRegistered(ctx, nodes); err != nil {
		return err
	}

	if !more && !slices.ContainsFunc(nodes, surveyed.open) {
		u.Print(fmt.Sprintf("all nodes run what they have to: %d", len(nodes)))

		return nil
	}

	return u.Hold(ctx, "upgrades Talos", func(ctx context.Context) error {
		if err := u.roll(ctx, nodes); err != nil || !more {
			return err
		}

		return u.rollLast(ctx, len(nodes))
	})
}

// rollLast upgrades the workers that did not answer before the others were brought to what they have to run.
func (u *upgrader) rollLast(ctx context.Context, done int) error {
	nodes, _, err := u.awaitKnown(ctx, func(surveyed) bool { return true })
	if err != nil {
		return fmt.Errorf("%w\nall other nodes run what they have to: %d", err, done)
	}

	if err := u.judgeRegistered(ctx, nodes); err != nil {
		return err
	}

	return u.roll(ctx, nodes)
}

// open says that there is something to do with a node.
func (s surveyed) open() bool { return s.differs() || s.ours }

func (u *upgrader) controlPlanesSilent(nodes []surveyed) bool {
	return !slices.ContainsFunc(nodes, func(s surveyed) bool { return s.controlPlane && s.silent == nil })
}

// notBootstrapped is a cluster whose first creation was interrupted: its machines cannot be upgraded as its members.
func (u *upgrader) notBootstrapped(nodes []surveyed) error {
	differ := differing(nodes)
	if len(differ) == 0 {
		u.Print("the cluster is not bootstrapped yet, and nothing is upgraded")

		return nil
	}

	return fmt.Errorf("%s runs Talos %s and has to run %s, but the cluster is not bootstrapped yet, so that no node can be "+
		"upgraded: finish its creation with the version and extensions that its machines were made with, and change them then",
		differ[0].Name, differ[0].runs.talos, differ[0].wanted.Talos)
}

// unfinished says whether an interrupted run has left its cordon; a cluster that cannot be asked has nothing to finish.
func (u *upgrader) unfinished(ctx context.Context) bool {
	c, err := u.open(ctx)
	if err != nil {
		return false
	}

	nodes, _, err := c.ListNodes(ctx)

	return err == nil && slices.ContainsFunc(nodes, cluster.CordonedByUs)
}

// judgeRegistered notes the cordons that an interrupted run has left, and refuses a version that does not run the
// Kubernetes that runs: Kubernetes is upgraded after Talos.
func (u *upgrader) judgeRegistered(ctx context.Context, nodes []surveyed) error {
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

		nodes[i].ours = cluster.CordonedByUs(now)

		if !nodes[i].differs() || now.Kubelet == "" {
			continue
		}

		if err := talos.Check(nodes[i].wanted.Talos, now.Kubelet); err != nil {
			problems = append(problems, fmt.Errorf("%s runs Kubernetes %s: %w; change kubernetesVersion first, in an up of its own",
				now.Name, now.Kubelet, err))
		}
	}

	if len(problems) > 0 {
		return fmt.Errorf("nothing was upgraded:\n%w", errors.Join(problems...))
	}

	return nil
}

// roll upgrades control planes one after the other, then workers.
func (u *upgrader) roll(ctx context.Context, nodes []surveyed) error {
	if err := u.judgeSteps(nodes); err != nil { // of what did not answer before
		return err
	}

	if len(differing(nodes)) > 0 && !u.kept {
		snapshot, err := keepSnapshot(ctx, u.Cluster, u.req.Backup)
		if err != nil {
			return fmt.Errorf("nothing was upgraded: %w", err)
		}

		u.kept, u.result.Snapshot = true, snapshot
	}

	todo := where(nodes, surveyed.open)

	for _, s := range where(todo, func(s surveyed) bool { return s.controlPlane }) {
		if err := u.bring(ctx, s); err != nil {
			return u.stopped(todo, err)
		}
	}

	if err := u.bringWorkers(ctx, where(todo, func(s surveyed) bool { return !s.controlPlane })); err != nil {
		return u.stopped(todo, err)
	}

	u.Print(fmt.Sprintf("all nodes that answer run what they have to: %d, of which %d were upgraded in %s",
		len(nodes), len(u.result.Upgraded), u.since(u.began)))

	return nil
}

// stopped adds to an error what it leaves for another run.
func (u *upgrader) stopped(todo []surveyed, err error) error {
	var left []string

	for _, s := range todo {
		if !slices.Contains(u.result.Upgraded, s.Name) {
			left = append(left, s.Name)
		}
	}

	if len(left) == 0 { // the last one is, and the cluster is not whole after it
		return err
	}

	return fmt.Errorf("%w\nnot upgraded: %v; the next run resumes there", err, left)
}

// bringWorkers brings so many workers at a time as are allowed; where one fails, no other begins.
func (u *upgrader) bringWorkers(ctx context.Context, todo []surveyed) error {
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		failed []error
	)

	turn := make(chan struct{}, max(u.req.ParallelWorkers, 1))

	for _, s := range todo {
		turn <- struct{}{}

		mu.Lock()
		stop := len(failed) > 0
		mu.Unlock()

		if stop {
			break
		}

		wg.Go(func() {
			defer func() { <-turn }()

			if err := u.bring(ctx, s); err != nil {
				mu.Lock()
				defer mu.Unlock()

				failed = append(failed, err)
			}
		})
	}

	wg.Wait()

	return errors.Join(failed...)
}

// since is how long something has taken, for people.
func (u *upgrader) since(began time.Time) time.Duration { return u.now().Sub(began).Round(time.Second) }
