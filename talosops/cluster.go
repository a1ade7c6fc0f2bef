package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
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
}

// openCluster makes the clients of a cluster's APIs. The kubeconfig comes from the first control plane that gives one.
func openCluster(ctx context.Context, w *watch, talos talosAPI, controlPlanes []node) (*cluster, error) {
	var problems []error

	for _, n := range controlPlanes {
		text, err := talos.kubeconfig(ctx, n.Address)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %s", n.Name, cause(err)))

			continue
		}

		kubernetes, err := newKubernetesAPI(text)
		if err != nil {
			return nil, fmt.Errorf("%s: kubeconfig: %w", n.Name, err)
		}

		return &cluster{
			watch: w, controlPlanes: controlPlanes, talos: talos, kubernetes: kubernetes, kubeconfig: text,
		}, nil
	}

	return nil, fmt.Errorf("no control plane gives a kubeconfig:\n%w", errors.Join(problems...))
}

// each does the same with all at once, and returns what came of it in their order.
func each[E, T any](list []E, do func(i int, one E) T) []T {
	results := make([]T, len(list))

	var wg sync.WaitGroup
	for i, one := range list {
		wg.Go(func() { results[i] = do(i, one) })
	}

	wg.Wait()

	return results
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

// listNodes asks the first control plane that answers, and returns its address, too.
func (c *cluster) listNodes(ctx context.Context) (nodes []kubeNode, address string, err error) {
	return firstOf(c.controlPlanes, func(address string) ([]kubeNode, error) { return c.kubernetes.nodes(ctx, address) })
}

// find returns the node of this name.
func find(nodes []kubeNode, name string) (kubeNode, bool) {
	i := slices.IndexFunc(nodes, func(n kubeNode) bool { return n.Name == name })
	if i < 0 {
		return kubeNode{}, false
	}

	return nodes[i], true
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
