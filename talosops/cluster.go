package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// cluster is a cluster that runs, whose machines are changed one at a time: it looks at the whole before and after,
// takes a node out of service, and puts it back.
type cluster struct {
	*watch

	controlPlanes []node
	aside         node // a machine in whatever state, which is changed or taken out; none = empty
	talos         talosAPI
	kubernetes    kubernetesAPI
	kubeconfig    string // the administrator's

	drainLimit  time.Duration // how long pods may take to leave a node; 0 = drainTimeout
	healthCheck string        // the user's own command; empty = there is none
}

// connect makes the client of the Kubernetes API of these control planes. The kubeconfig comes from the first one that
// gives one.
func (c *cluster) connect(ctx context.Context, controlPlanes []node) (*cluster, error) {
	var problems []error

	for _, n := range controlPlanes {
		text, err := c.talos.kubeconfig(ctx, n.Address)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %s", n.Name, cause(err)))

			continue
		}

		kubernetes, err := newKubernetesAPI(text)
		if err != nil {
			return nil, fmt.Errorf("%s: kubeconfig: %w", n.Name, err)
		}

		connected := *c
		connected.controlPlanes, connected.kubernetes, connected.kubeconfig = controlPlanes, kubernetes, text

		return &connected, nil
	}

	return nil, fmt.Errorf("no control plane gives a kubeconfig:\n%w", errors.Join(problems...))
}

// firstOf asks nodes one after the other until one answers, and returns its address, too.
func firstOf[T any](nodes []node, ask func(address string) (T, error)) (answer T, address string, err error) {
	for _, n := range nodes {
		if answer, err = ask(n.Address); err == nil {
			return answer, n.Address, nil
		}
	}

	return answer, "", err
}

// silent is the finding of a node whose Talos API does not answer.
func silent(n node, check string, err error) finding {
	return finding{node: n.Name, check: check, problem: "Talos does not answer on " + n.Address, detail: cause(err)}
}

// listNodes asks the first control plane that answers, and returns its address, too.
func (c *cluster) listNodes(ctx context.Context) (nodes []kubeNode, address string, err error) {
	return firstOf(c.controlPlanes, func(address string) ([]kubeNode, error) { return c.kubernetes.nodes(ctx, address) })
}

const bootCheck = "boot"

// rebooted waits until a machine has another boot id than before.
func (c *cluster) rebooted(ctx context.Context, n node, before string) error {
	booted := goal{
		before: n.Name + " had booted again", missed: n.Name + " has not booted again",
		remedy: "look at its console, or at talosctl --nodes " + n.Address + " dmesg; `talosctl --nodes " + n.Address +
			" reboot` ends a shutdown that hangs",
	}

	return c.until(ctx, booted, func(ctx context.Context) report {
		id, err := c.talos.bootID(ctx, n.Address)
		switch {
		case err != nil:
			return report{silent(n, bootCheck, err)}
		case id == before:
			return report{{node: n.Name, check: bootCheck, problem: "has not shut down yet"}}
		default:
			return nil
		}
	})
}

// awaitBoot waits for a machine to answer, and returns the boot that it is in.
func (c *cluster) awaitBoot(ctx context.Context, limit time.Duration, n node, check string) (id string, answers bool) {
	_ = c.within(ctx, limit, goal{}, func(ctx context.Context) report {
		boot, err := c.talos.bootID(ctx, n.Address)
		if err != nil {
			return report{silent(n, check, err)}
		}

		id, answers = boot, true

		return nil
	})

	return id, answers
}

// without is the cluster as seen without one machine, which may be in any state.
func (c *cluster) without(n node) *cluster {
	others := *c
	others.aside = n
	others.controlPlanes = slices.DeleteFunc(slices.Clone(c.controlPlanes), func(other node) bool { return other == n })

	return &others
}

// dropNew leaves out control planes that this run makes: they are no members of etcd, no nodes, and do not answer.
func (c *cluster) dropNew(ctx context.Context) error {
	nodes, _, err := c.listNodes(ctx)
	if err != nil {
		return nil // who is new cannot be told; the look names what is wrong
	}

	members, _, err := firstOf(c.controlPlanes, func(address string) ([]member, error) {
		return c.talos.members(ctx, address)
	})
	if err != nil {
		return nil
	}

	c.controlPlanes = slices.DeleteFunc(slices.Clone(c.controlPlanes), func(n node) bool {
		if _, is := find(nodes, n.Name); is || slices.ContainsFunc(members, func(m member) bool { return m.is(n) }) {
			return false
		}

		_, err := c.talos.bootID(ctx, n.Address)

		return err != nil
	})

	return ctx.Err()
}
