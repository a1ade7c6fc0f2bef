package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// nodesAPI reads and changes Node objects through one control plane.
type nodesAPI interface {
	markedNodes(ctx context.Context, address string) ([]markedNode, error)
	patchNode(ctx context.Context, address, node string, patch nodePatch) error
}

// errChanged says that a node was changed since it was read.
var errChanged = errors.New("the node changed in the meantime")

// marker gives nodes their labels and taints.
type marker struct {
	*watch

	req        *markRequest
	kubernetes nodesAPI
}

func (m *marker) mark(ctx context.Context) error {
	marked := goal{
		before: "all nodes had their labels and taints", missed: "not all nodes have their labels and taints",
		remedy: "see what keeps a node from its cluster, with talosctl --nodes <address> dmesg",
	}
	done := map[string]bool{}

	err := m.until(ctx, marked, func(ctx context.Context) (report, bool) {
		current := m.round(ctx, done)

		return current, len(current.open()) == 0
	})
	if err == nil {
		m.print(fmt.Sprintf("labels and taints of nodes are up to date: %d", len(m.req.Marks)))
	}

	return err
}

const markCheck = "labels and taints"

// round marks all nodes that are registered and not done yet, at once.
func (m *marker) round(ctx context.Context, done map[string]bool) report {
	nodes, address, err := m.nodes(ctx)
	reports := make(report, len(m.req.Marks))

	var wg sync.WaitGroup
	for i, stated := range m.req.Marks {
		wg.Go(func() {
			f := finding{}

			switch {
			case done[stated.Node]:
			case err != nil:
				f = finding{problem: "no Kubernetes API lists the nodes", detail: err.Error()}
			default:
				f = m.markNode(ctx, address, stated, nodes)
			}

			f.node, f.check = stated.Node, markCheck

			reports[i] = f
			if f.note != "" {
				m.say(ctx, f)
			}
		})
	}

	wg.Wait()

	for _, f := range reports {
		done[f.node] = f.problem == ""
	}

	return reports
}

// nodes asks the first control plane that answers, and returns its address.
func (m *marker) nodes(ctx context.Context) (nodes []markedNode, address string, err error) {
	for _, n := range m.req.ControlPlanes {
		nodes, err = call(
			ctx, func(ctx context.Context) ([]markedNode, error) { return m.kubernetes.markedNodes(ctx, n.Address) },
		)
		if err == nil {
			return nodes, n.Address, nil
		}
	}

	return nil, "", err
}

func (m *marker) markNode(ctx context.Context, address string, stated marks, nodes []markedNode) finding {
	i := slices.IndexFunc(nodes, func(n markedNode) bool { return n.Name == stated.Node })
	if i < 0 {
		return finding{problem: "its node is not registered"}
	}

	if has := nodes[i].ProviderID; stated.ProviderID != "" && has != "" && has != stated.ProviderID {
		return finding{
			problem: fmt.Sprintf("its provider id is %s instead of %s, and Kubernetes lets no one change it", has, stated.ProviderID),
			detail:  "delete the Node object and restart its kubelet, or set the region back",
		}
	}

	patch, note := compareMarks(nodes[i], stated)
	if patch == nil {
		return finding{}
	}

	_, err := call(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, m.kubernetes.patchNode(ctx, address, stated.Node, *patch)
	})
	switch {
	case errors.Is(err, errChanged):
		return finding{problem: err.Error()}
	case err != nil:
		return finding{problem: "the Kubernetes API does not take the change", detail: err.Error()}
	default:
		return finding{note: note}
	}
}

// markedNodes lists the cluster's nodes.
func (k *kubernetesClients) markedNodes(ctx context.Context, address string) ([]markedNode, error) {
	list, err := k.nodeList(ctx, address)
	if err != nil {
		return nil, err
	}

	nodes := make([]markedNode, 0, len(list.Items))
	for _, item := range list.Items {
		nodes = append(nodes, markedNode{
			Name: item.Name, Version: item.ResourceVersion, Labels: item.Labels, Annotations: item.Annotations,
			ProviderID: item.Spec.ProviderID, Taints: item.Spec.Taints,
		})
	}

	return nodes, nil
}

// patchNode changes a node; errChanged says that it is not the one that was compared any more.
func (k *kubernetesClients) patchNode(ctx context.Context, address, node string, patch nodePatch) error {
	content, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("unable to encode the change of node %s: %w", node, err)
	}

	_, err = askKubernetes(k, address, func(c kubernetesClient) (*corev1.Node, error) {
		return c.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, content, metav1.PatchOptions{})
	})

	switch {
	case apierrors.IsConflict(err):
		return errChanged
	case apierrors.IsInvalid(err):
		// What it says quotes labels, which may come from a secret configuration.
		return errors.New(statusText(err))
	default:
		return err
	}
}
