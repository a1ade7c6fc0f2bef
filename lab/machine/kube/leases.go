package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// leases is the name of their resource.
const leases = "leases"

// leaseRoutes are what the model has of Lease objects: by them operators take turns.
func (s *server) leaseRoutes() map[string]func(*http.Request) (any, error) {
	const list = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/" + leases

	return map[string]func(*http.Request) (any, error){
		"GET " + list + "/{name}": func(r *http.Request) (any, error) {
			return s.lease(r.PathValue("namespace"), r.PathValue("name"))
		},
		"POST " + list:            func(r *http.Request) (any, error) { return s.storeLease(r, "") },
		"PUT " + list + "/{name}": func(r *http.Request) (any, error) { return s.storeLease(r, r.PathValue("name")) },
	}
}

func (s *server) lease(namespace, name string) (any, error) {
	c, unlock := s.machine.Cluster()
	defer unlock()

	if o := c.Object(leases, namespace, name); o != nil {
		return o, nil
	}

	return nil, noLease(name)
}

func noLease(name string) error { return apierrors.NewNotFound(coordinationv1.Resource(leases), name) }

// storeLease makes a lease where name is empty, else it changes the one of that name.
func (s *server) storeLease(r *http.Request, name string) (any, error) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}

	var l coordinationv1.Lease
	if err := json.Unmarshal(text, &l); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}

	if duration := l.Spec.LeaseDurationSeconds; duration != nil && *duration <= 0 {
		return nil, refusal(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, fmt.Sprintf(
			"Lease.coordination.k8s.io %q is invalid: spec.leaseDurationSeconds: Invalid value: %d: must be greater than 0",
			l.Name, *duration,
		))
	}

	c, unlock := s.machine.Cluster()
	defer unlock()

	l.Namespace = r.PathValue("namespace")

	var known coordinationv1.Lease

	there, err := c.Stored(leases, l.Namespace, l.Name, &known)

	switch {
	case err != nil:
		return nil, err
	case name == "" && there:
		return nil, apierrors.NewAlreadyExists(coordinationv1.Resource(leases), l.Name)
	case name == "" && l.ResourceVersion != "":
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	case name != "" && !there:
		return nil, noLease(name)
	case name != "" && name != l.Name:
		return nil, apierrors.NewBadRequest(fmt.Sprintf(
			"the name of the object (%s) does not match the name on the URL (%s)", l.Name, name,
		))
	case there && l.ResourceVersion != "" && l.ResourceVersion != known.ResourceVersion:
		return nil, apierrors.NewConflict(coordinationv1.Resource(leases), name, errors.New(
			"the object has been modified; please apply your changes to the latest version and try again",
		))
	}

	l.UID, l.CreationTimestamp = known.UID, known.CreationTimestamp
	o := c.Put(leases, l.Namespace, l.Name, func(revision uint64, uid string) any {
		l.ResourceVersion, l.UID = fmt.Sprint(revision), types.UID(uid)

		return l
	})

	return o, nil
}
