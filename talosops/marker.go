package main

import (
	"context"
	"errors"
	"fmt"
)

// marker gives nodes their labels and taints.
type marker struct {
	*cluster

	marks []marks
}

func (m *marker) mark(ctx context.Context) error {
	marked := goal{
		before: "all nodes had their labels and taints", missed: "not all nodes have their labels and taints",
		remedy: "see what keeps a node from its cluster, with talosctl --nodes <address> dmesg",
	}
	done := map[string]bool{}

	err := m.until(ctx, marked, func(ctx context.Context) report {
		return m.round(ctx, done)
	})
	if err == nil {
		m.print(fmt.Sprintf("labels and taints of nodes are up to date: %d", len(m.marks)))
	}

	return err
}

const markCheck = "labels and taints"

// round marks all nodes that are registered and not done yet, at once.
func (m *marker) round(ctx context.Context, done map[string]bool) report {
	nodes, address, err := m.listNodes(ctx)

	reports := each(m.marks, func(_ int, stated marks) finding {
		f := finding{}

		switch {
		case done[stated.Node]:
		case err != nil:
			f = finding{problem: "no Kubernetes API lists the nodes", detail: err.Error()}
		default:
			f = m.markNode(ctx, address, stated, nodes)
		}

		f.node, f.check = stated.Node, markCheck

		if f.note != "" {
			m.say(ctx, f)
		}

		return f
	})

	for _, f := range reports {
		done[f.node] = f.problem == ""
	}

	return reports
}

func (m *marker) markNode(ctx context.Context, address string, stated marks, nodes []kubeNode) finding {
	n, registered := find(nodes, stated.Node)
	if !registered {
		return finding{problem: "its node is not registered"}
	}

	if has := n.ProviderID; stated.ProviderID != "" && has != "" && has != stated.ProviderID {
		return finding{
			problem: fmt.Sprintf("its provider id is %s instead of %s, and Kubernetes lets no one change it", has, stated.ProviderID),
			detail:  "delete the Node object and restart its kubelet, or set the region back",
		}
	}

	patch, note := compareMarks(n, stated)
	if patch == nil {
		return finding{}
	}

	err := m.kubernetes.patchNode(ctx, address, stated.Node, *patch)
	switch {
	case errors.Is(err, errChanged):
		return finding{problem: err.Error()}
	case err != nil:
		return finding{problem: "the Kubernetes API does not take the change", detail: err.Error()}
	default:
		return finding{note: note}
	}
}
