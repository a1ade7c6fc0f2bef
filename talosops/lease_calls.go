package main

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// lease reads who holds a lease; nothing is an answer, too.
func (k *kubernetesClients) lease(ctx context.Context, address, name string) (kubeLease, error) {
	o, err := askKubernetes(ctx, k, address, func(ctx context.Context, c kubernetesClient) (*coordinationv1.Lease, error) {
		return c.CoordinationV1().Leases(leaseNamespace).Get(ctx, name, metav1.GetOptions{})
	})
	if apierrors.IsNotFound(err) {
		return kubeLease{}, nil
	}

	if err != nil {
		return kubeLease{}, err
	}

	l := kubeLease{
		Name: name, Version: o.ResourceVersion, Holder: ptr.Deref(o.Spec.HolderIdentity, ""),
		Transitions: int(ptr.Deref(o.Spec.LeaseTransitions, 0)),
		Duration:    time.Duration(ptr.Deref(o.Spec.LeaseDurationSeconds, 0)) * time.Second,
	}
	// Times are told to people; a lease without them is still held.
	l.Acquired = ptr.Deref(o.Spec.AcquireTime, metav1.MicroTime{}).Time
	l.Renewed = ptr.Deref(o.Spec.RenewTime, metav1.MicroTime{}).Time

	return l, nil
}

// putLease makes a lease, or changes the one of its version; an error says that someone else did so meanwhile.
func (k *kubernetesClients) putLease(ctx context.Context, address string, l kubeLease) error {
	o := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: l.Name, Namespace: leaseNamespace, ResourceVersion: l.Version},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       &l.Holder,
			LeaseDurationSeconds: ptr.To(int32(l.Duration / time.Second)),
			AcquireTime:          &metav1.MicroTime{Time: l.Acquired},
			RenewTime:            &metav1.MicroTime{Time: l.Renewed},
			LeaseTransitions:     ptr.To(int32(l.Transitions)), //nolint:gosec // one for each operator's turn
		},
	}

	_, err := askKubernetes(ctx, k, address, func(ctx context.Context, c kubernetesClient) (*coordinationv1.Lease, error) {
		leases := c.CoordinationV1().Leases(leaseNamespace)
		if l.Version == "" {
			return leases.Create(ctx, o, metav1.CreateOptions{})
		}

		return leases.Update(ctx, o, metav1.UpdateOptions{})
	})

	return err
}
