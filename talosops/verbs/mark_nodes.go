package verbs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/kube"
)

// marker sets labels and taints of nodes.
type marker struct {
	*cluster.Cluster

	marks []marks
}

func (m *marker) mark(ctx context.Context) error {
	goal := checks.Goal{
		Before: "all nodes had their labels and taints", Missed: "not all nodes have their labels and taints",
		Remedy: "see what keeps a node from its cluster, with talosctl --nodes <address> dmesg",
	}
	done := map[string]bool{}

	err := m.Until(ctx, goal, func(ctx context.Context) checks.Report {
		return m.round(ctx, done)
	})
	if err == nil {
		m.Print(fmt.Sprintf("labels and taints of nodes are up to date: %d", len(m.marks)))
	}

	return err
}

const markCheck = "labels and taints"

// round marks all registered nodes that are not done yet, at once.
func (m *marker) round(ctx context.Context, done map[string]bool) checks.Report {
	nodes, address, err := m.ListNodes(ctx)

	reports := checks.ParallelMap(m.marks, func(_ int, want marks) checks.Finding {
		f := checks.Finding{}

		switch {
		case done[want.Node]:
		case err != nil:
			f = cluster.NodesUnknown(want.Node, markCheck, err)[0]
		default:
			f = m.markNode(ctx, address, want, nodes)
		}

		f.Node, f.Check = want.Node, markCheck

		if f.Note != "" {
			m.PrintNote(ctx, f.Node, f.Check, f.Note)
		}

		return f
	})

	for _, f := range reports {
		done[f.Node] = f.Problem == ""
	}

	return reports
}

func (m *marker) markNode(ctx context.Context, address netip.Addr, want marks, nodes []kube.Node) checks.Finding {
	n, registered := kube.Find(nodes, want.Node)
	if !registered {
		return checks.Finding{Problem: "its node is not registered"}
	}

	if has := n.ProviderID; want.ProviderID != "" && has != "" && has != want.ProviderID {
		return checks.Finding{
			Problem: fmt.Sprintf("its provider id is %s instead of %s, and Kubernetes lets no one change it", has, want.ProviderID),
			Detail:  "delete the Node object and restart its kubelet, or set the region back",
		}
	}

	patch, note := diffMarks(n, want)
	if patch == nil {
		return checks.Finding{}
	}

	err := m.Kubernetes.PatchNode(ctx, address, want.Node, *patch)
	switch {
	case errors.Is(err, kube.ErrChanged):
		return checks.Finding{Problem: err.Error()}
	case err != nil:
		return checks.Finding{Problem: "the Kubernetes API rejects the change", Detail: err.Error()}
	default:
		return checks.Finding{Note: note}
	}
}
