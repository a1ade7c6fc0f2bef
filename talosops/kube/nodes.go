package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Nodes lists all nodes.
func (k *Client) Nodes(ctx context.Context, address string) ([]Node, error) {
	list, err := askKubernetes(ctx, k, address, func(ctx context.Context, c serverClient) (*corev1.NodeList, error) {
		return c.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	})
	if err != nil {
		return nil, err
	}

	nodes := make([]Node, 0, len(list.Items))
	for _, item := range list.Items {
		n := Node{
			Name: item.Name, Kubelet: item.Status.NodeInfo.KubeletVersion, Allocatable: map[string]string{},
			UID: string(item.UID), Version: item.ResourceVersion, Labels: item.Labels, Annotations: item.Annotations,
			Unschedulable: item.Spec.Unschedulable, Taints: item.Spec.Taints, ProviderID: item.Spec.ProviderID,
			Boot: item.Status.NodeInfo.BootID,
		}
		for resource, quantity := range item.Status.Allocatable {
			n.Allocatable[string(resource)] = quantity.String()
		}

		for _, address := range item.Status.Addresses {
			if address.Type == corev1.NodeInternalIP {
				n.Address = address.Address

				break
			}
		}

		for _, condition := range item.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				n.Ready, n.Lost = condition.Status == corev1.ConditionTrue, condition.Status == corev1.ConditionUnknown
				n.Waits = condition.Message
			}
		}

		nodes = append(nodes, n)
	}

	return nodes, nil
}

// ErrChanged says that a node was changed since it was read.
var ErrChanged = errors.New("the node changed in the meantime")

// PatchNode changes a node; ErrChanged says that it is not the one that was compared any more.
func (k *Client) PatchNode(ctx context.Context, address, node string, patch NodePatch) error {
	content, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("unable to encode the change of node %s: %w", node, err)
	}

	_, err = askKubernetes(ctx, k, address, func(ctx context.Context, c serverClient) (*corev1.Node, error) {
		return c.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, content, metav1.PatchOptions{})
	})

	switch {
	case apierrors.IsConflict(err):
		return ErrChanged
	case apierrors.IsInvalid(err):
		// What it says quotes labels, which may come from a secret configuration.
		return errors.New(statusText(err))
	default:
		return err
	}
}

// DeleteNode deletes a Node object, unless another one has its name.
func (k *Client) DeleteNode(ctx context.Context, address string, n Node) error {
	_, err := askKubernetes(ctx, k, address, func(ctx context.Context, c serverClient) (struct{}, error) {
		only := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(n.UID)}

		return struct{}{}, c.CoreV1().Nodes().Delete(ctx, n.Name, only)
	})
	if apierrors.IsNotFound(err) {
		return nil
	}

	return err
}

// PodsOn lists the pods of a node that have not ended.
func (k *Client) PodsOn(ctx context.Context, address, node string) ([]Pod, error) {
	list, err := k.podList(ctx, address, node)
	if err != nil {
		return nil, err
	}

	var pods []Pod

	for _, item := range list.Items {
		if item.Status.Phase == corev1.PodSucceeded || item.Status.Phase == corev1.PodFailed {
			continue
		}

		p := Pod{
			Namespace: item.Namespace, Name: item.Name, UID: string(item.UID), Leaving: item.DeletionTimestamp != nil,
		}

		owner := metav1.GetControllerOf(&item)
		p.Stays = metav1.HasAnnotation(item.ObjectMeta, corev1.MirrorPodAnnotationKey) ||
			owner != nil && owner.Kind == "DaemonSet"

		pods = append(pods, p)
	}

	return pods, nil
}

func (k *Client) podList(ctx context.Context, address, node string) (*corev1.PodList, error) {
	return askKubernetes(ctx, k, address, func(ctx context.Context, c serverClient) (*corev1.PodList, error) {
		return c.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	})
}

// Evict asks for a pod to leave its node; the error says which budget forbids it. The UID keeps a namesake that was
// made meanwhile.
func (k *Client) Evict(ctx context.Context, address string, p Pod) error {
	_, err := askKubernetes(ctx, k, address, func(ctx context.Context, c serverClient) (struct{}, error) {
		return struct{}{}, c.CoreV1().Pods(p.Namespace).EvictV1(ctx, &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
			DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(p.UID)},
		})
	})

	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // the next look says who is left
		return nil
	case apierrors.IsTooManyRequests(err):
		return errors.New(strings.Join(append([]string{messageOf(err)}, causes(err)...), " "))
	default:
		return err
	}
}

// causes are what a refusal says in detail.
func causes(err error) []string {
	var (
		status apierrors.APIStatus
		list   []string
	)

	if errors.As(err, &status) && status.Status().Details != nil {
		for _, c := range status.Status().Details.Causes {
			list = append(list, c.Message)
		}
	}

	return slices.Compact(list)
}

// LeaseNamespace has the leases.
const LeaseNamespace = "kube-system"

// Lease reads who holds a lease; nothing is an answer, too.
func (k *Client) Lease(ctx context.Context, address, name string) (Lease, error) {
	o, err := askKubernetes(ctx, k, address, func(ctx context.Context, c serverClient) (*coordinationv1.Lease, error) {
		return c.CoordinationV1().Leases(LeaseNamespace).Get(ctx, name, metav1.GetOptions{})
	})
	if apierrors.IsNotFound(err) {
		return Lease{}, nil
	}

	if err != nil {
		return Lease{}, err
	}

	return Lease{*resourcelock.LeaseSpecToLeaderElectionRecord(&o.Spec), name, o.ResourceVersion}, nil
}

// PutLease makes a lease, or changes the one of its version; an error says that someone else did so meanwhile.
func (k *Client) PutLease(ctx context.Context, address string, l Lease) error {
	o := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: l.Name, Namespace: LeaseNamespace, ResourceVersion: l.Version},
		Spec:       resourcelock.LeaderElectionRecordToLeaseSpec(&l.LeaderElectionRecord),
	}

	_, err := askKubernetes(ctx, k, address, func(ctx context.Context, c serverClient) (*coordinationv1.Lease, error) {
		leases := c.CoordinationV1().Leases(LeaseNamespace)
		if l.Version == "" {
			return leases.Create(ctx, o, metav1.CreateOptions{})
		}

		return leases.Update(ctx, o, metav1.UpdateOptions{})
	})

	return err
}
