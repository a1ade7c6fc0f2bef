package kube

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// leaseList is the path of Leases, which leader election uses.
const (
	leases    = "leases"
	leaseList = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/" + leases
)

func (s *server) lease(r *http.Request) (any, error) {
	c, unlock := s.machine.Cluster()
	defer unlock()

	if l := c.Get(leases, r.PathValue("namespace"), r.PathValue("name")); l != nil {
		return l, nil
	}

	return nil, apierrors.NewNotFound(coordinationv1.Resource(leases), r.PathValue("name"))
}

func (s *server) createLease(r *http.Request) (any, error) {
	return s.storeLease(r, func(l, known *unstructured.Unstructured) error {
		switch {
		case known != nil:
			return apierrors.NewAlreadyExists(coordinationv1.Resource(leases), l.GetName())
		case l.GetResourceVersion() != "":
			return apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
		default:
			return nil
		}
	})
}

func (s *server) updateLease(r *http.Request) (any, error) {
	return s.storeLease(r, func(l, known *unstructured.Unstructured) error {
		name := r.PathValue("name")

		switch {
		case name != l.GetName():
			return apierrors.NewBadRequest(fmt.Sprintf(
				"the name of the object (%s) does not match the name on the URL (%s)", l.GetName(), name,
			))
		case known == nil:
			return apierrors.NewNotFound(coordinationv1.Resource(leases), name)
		case l.GetResourceVersion() != "" && l.GetResourceVersion() != known.GetResourceVersion():
			return apierrors.NewConflict(coordinationv1.Resource(leases), name, errors.New(
				"the object has been modified; please apply your changes to the latest version and try again",
			))
		default:
			return nil
		}
	})
}

// storeLease stores the lease of a request unless check refuses it, given the existing lease with its name.
func (s *server) storeLease(r *http.Request, check func(l, known *unstructured.Unstructured) error) (any, error) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}

	l := &unstructured.Unstructured{}
	if err := l.UnmarshalJSON(text); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}

	l.SetGroupVersionKind(coordinationv1.SchemeGroupVersion.WithKind("Lease"))
	l.SetNamespace(r.PathValue("namespace"))

	duration, set, err := unstructured.NestedInt64(l.Object, "spec", "leaseDurationSeconds")
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}

	if set && duration <= 0 {
		return nil, statusError(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, fmt.Sprintf(
			"Lease.coordination.k8s.io %q is invalid: spec.leaseDurationSeconds: Invalid value: %d: must be greater than 0",
			l.GetName(), duration,
		))
	}

	c, unlock := s.machine.Cluster()
	defer unlock()

	if err := check(l, c.Get(leases, l.GetNamespace(), l.GetName())); err != nil {
		return nil, err
	}

	c.Put(l)

	return l, nil
}
