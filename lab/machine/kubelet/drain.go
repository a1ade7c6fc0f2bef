package kubelet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"

	"talos-proxmox/lab/machine/controlplane"
)

// Timeouts of Talos' drain: it waits a minute for its own cordon, evicts pods for five minutes, and waits a minute for
// the deletion of each. It retries evictions that a disruption budget refuses, and finally leaves those pods.
const (
	cordonTimeout         = time.Minute
	drainTimeout          = 5 * time.Minute
	evictionRetryInterval = 5 * time.Second
	evictionGraceSeconds  = 60
	deletionTimeout       = time.Minute
)

// Drain evicts the node's pods once Talos has cordoned the node.
func (k *Kubelet) Drain(ctx context.Context) error {
	k.m.Logf("[talos] waiting for node to be cordoned")

	r, err := k.awaitCordon(ctx)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()

	pods, err := r.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", r.Node).String(),
	})
	if err != nil {
		return fmt.Errorf("cannot get pods for node %s: %w", r.Node, err)
	}

	var evictions sync.WaitGroup
	defer evictions.Wait()

	for _, p := range pods.Items {
		owner := metav1.GetControllerOf(&p)
		if _, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]; mirror || owner == nil || owner.Kind == "DaemonSet" {
			continue
		}

		evictions.Go(func() {
			if err := r.evict(ctx, &p); err != nil {
				k.m.Logf("[talos] WARNING: failed to evict pod: %s", err)
			}
		})
	}

	return nil
}

// awaitCordon waits until the node is cordoned, and returns the session with its API server.
func (k *Kubelet) awaitCordon(ctx context.Context) (r *session, err error) {
	if wait.PollUntilContextTimeout(ctx, syncInterval, cordonTimeout, true, func(ctx context.Context) (bool, error) {
		if r, err = k.activeSession(); err != nil {
			return false, nil //nolint:nilerr // polled again
		}

		node, err := r.Client.CoreV1().Nodes().Get(ctx, r.Node, metav1.GetOptions{})

		return err == nil && node.Spec.Unschedulable, nil
	}) != nil {
		return nil, errors.New("the node was not cordoned")
	}

	return r, nil
}

// evict evicts a pod, retrying while a disruption budget refuses, and waits for its deletion.
func (r *session) evict(ctx context.Context, p *corev1.Pod) error {
	grace := int64(evictionGraceSeconds)
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
		DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: &grace},
	}

	for {
		err := r.Client.CoreV1().Pods(p.Namespace).EvictV1(ctx, eviction)

		switch {
		case apierrors.IsTooManyRequests(err):
			controlplane.Sleep(ctx, evictionRetryInterval)
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return fmt.Errorf("failed to evict pod %s/%s: %w", p.Namespace, p.Name, err)
		default:
			return r.awaitDeleted(ctx, p)
		}
	}
}

// awaitDeleted waits until a pod is deleted. Forbidden means deleted: the API server answers a node so for pods that it
// does not have.
func (r *session) awaitDeleted(ctx context.Context, p *corev1.Pod) error {
	deleted := func(ctx context.Context) (bool, error) {
		current, err := r.Client.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})

		return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || err == nil && current.UID != p.UID, nil
	}

	if err := wait.PollUntilContextTimeout(ctx, syncInterval, deletionTimeout, true, deleted); err != nil {
		return fmt.Errorf("failed waiting on pod %s/%s to be deleted: %w", p.Namespace, p.Name, err)
	}

	return nil
}
