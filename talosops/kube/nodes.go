package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
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
func (k *Client) Nodes(ctx context.Context, address netip.Addr) ([]Node, error) {
	list, err := call(ctx, k, address, func(ctx context.Context, c serverClient) (*corev1.NodeList, error) {
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
			BootID: item.Status.NodeInfo.BootID,
		}
		for resource, quantity := range item.Status.Allocatable {
			n.Allocatable[string(resource)] = quantity.String()
		}

		for _, address := range item.Status.Addresses {
			found, err := netip.ParseAddr(address.Address)
			if err == nil && found.Is4() && address.Type == corev1.NodeInternalIP {
				n.Address = found

				break
			}
		}

		for _, condition := range item.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				n.Ready, n.Unreachable = condition.Status == corev1.ConditionTrue, condition.Status == corev1.ConditionUnknown
				n.ReadyMessage, n.ReadySince = condition.Message, condition.LastTransitionTime.Time
			}
		}

		nodes = append(nodes, n)
	}

	return nodes, nil
}

// ErrChanged says that a node was changed since it was read.
var ErrChanged = errors.New("the node changed in the meantime")

// PatchNode changes a node. It returns ErrChanged if the node was changed since it was read.
func (k *Client) PatchNode(ctx context.Context, address netip.Addr, node string, patch NodePatch) error {
	content, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("unable to encode the change of node %s: %w", node, err)
	}

	_, err = call(ctx, k, address, func(ctx context.Context, c serverClient) (*corev1.Node, error) {
		return c.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, content, metav1.PatchOptions{})
	})

	switch {
	case apierrors.IsConflict(err):
		return ErrChanged
	case apierrors.IsInvalid(err):
		// The message quotes labels, which may come from a secret configuration.
		return errors.New(statusText(err))
	default:
		return err
	}
}

// DeleteNode deletes a Node object, but not another one of the same name.
func (k *Client) DeleteNode(ctx context.Context, address netip.Addr, n Node) error {
	_, err := call(ctx, k, address, func(ctx context.Context, c serverClient) (struct{}, error) {
		options := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(n.UID)}

		return struct{}{}, c.CoreV1().Nodes().Delete(ctx, n.Name, options)
	})
	if apierrors.IsNotFound(err) {
		return nil
	}

	return err
}

// PodsOn lists the pods of a node that have not terminated.
func (k *Client) PodsOn(ctx context.Context, address netip.Addr, node string) ([]Pod, error) {
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
			Namespace: item.Namespace, Name: item.Name, UID: string(item.UID), Terminating: item.DeletionTimestamp != nil,
		}

		owner := metav1.GetControllerOf(&item)
		p.IgnoredByDrain = metav1.HasAnnotation(item.ObjectMeta, corev1.MirrorPodAnnotationKey) ||
			owner != nil && owner.Kind == "DaemonSet"

		pods = append(pods, p)
	}

	return pods, nil
}

func (k *Client) podList(ctx context.Context, address netip.Addr, node string) (*corev1.PodList, error) {
	return call(ctx, k, address, func(ctx context.Context, c serverClient) (*corev1.PodList, error) {
		return c.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	})
}

// Evict evicts a pod; the error names the disruption budget that forbids it. The UID protects a new pod of the same
// name.
func (k *Client) Evict(ctx context.Context, address netip.Addr, p Pod) error {
	_, err := call(ctx, k, address, func(ctx context.Context, c serverClient) (struct{}, error) {
		return struct{}{}, c.CoreV1().Pods(p.Namespace).EvictV1(ctx, &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
			DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(p.UID)},
		})
	})

	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // the pod is gone; the next PodsOn shows what is left
		return nil
	case apierrors.IsTooManyRequests(err):
		return errors.New(strings.Join(append([]string{messageOf(err)}, causeMessages(err)...), " "))
	default:
		return err
	}
}

// causeMessages returns the messages in the details of an error response.
func causeMessages(err error) []string {
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

// LeaseNamespace is the namespace of the leases.
const LeaseNamespace = "kube-system"

// Lease returns a lease; one that does not exist has no version.
func (k *Client) Lease(ctx context.Context, address netip.Addr, name string) (Lease, error) {
	o, err := call(ctx, k, address, func(ctx context.Context, c serverClient) (*coordinationv1.Lease, error) {
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

// PutLease creates a lease without a version, and updates another one unless it was changed since it was read.
func (k *Client) PutLease(ctx context.Context, address netip.Addr, l Lease) error {
	o := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: l.Name, Namespace: LeaseNamespace, ResourceVersion: l.Version},
		Spec:       resourcelock.LeaderElectionRecordToLeaseSpec(&l.LeaderElectionRecord),
	}

	_, err := call(ctx, k, address, func(ctx context.Context, c serverClient) (*coordinationv1.Lease, error) {
		leases := c.CoordinationV1().Leases(LeaseNamespace)
		if l.Version == "" {
			return leases.Create(ctx, o, metav1.CreateOptions{})
		}

		return leases.Update(ctx, o, metav1.UpdateOptions{})
	})

	return err
}
