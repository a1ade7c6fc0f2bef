package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

const leasesPath = "/apis/coordination.k8s.io/v1/namespaces/" + leaseNamespace + "/leases"

// leaseTime is how Kubernetes writes the times of a lease.
const leaseTime = "2006-01-02T15:04:05.000000Z07:00"

// leaseObject is a Lease as the API reads and writes it.
type leaseObject struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name            string `json:"name"`
		Namespace       string `json:"namespace"`
		ResourceVersion string `json:"resourceVersion,omitempty"`
	} `json:"metadata"`
	Spec struct {
		HolderIdentity       string `json:"holderIdentity"`
		LeaseDurationSeconds int    `json:"leaseDurationSeconds"`
		AcquireTime          string `json:"acquireTime,omitempty"`
		RenewTime            string `json:"renewTime,omitempty"`
		LeaseTransitions     int    `json:"leaseTransitions"`
	} `json:"spec"`
}

// lease reads who holds a lease; nothing is an answer, too.
func (k *kubernetesClients) lease(ctx context.Context, address, name string) (kubeLease, error) {
	answer, err := k.send(ctx, address, http.MethodGet, leasesPath+"/"+name, "", nil)

	switch {
	case err != nil:
		return kubeLease{}, err
	case answer.code == http.StatusNotFound:
		return kubeLease{}, nil
	case answer.code != http.StatusOK:
		return kubeLease{}, fmt.Errorf("%s: %s", answer.status, answer.message())
	}

	var o leaseObject
	if err := json.Unmarshal(answer.body, &o); err != nil {
		return kubeLease{}, fmt.Errorf("unable to read the lease: %w", err)
	}

	l := kubeLease{
		Name: name, Version: o.Metadata.ResourceVersion, Holder: o.Spec.HolderIdentity, Transitions: o.Spec.LeaseTransitions,
		Duration: time.Duration(o.Spec.LeaseDurationSeconds) * time.Second,
	}
	// Times are told to people; a lease without them is still held.
	l.Acquired, _ = time.Parse(time.RFC3339, o.Spec.AcquireTime)
	l.Renewed, _ = time.Parse(time.RFC3339, o.Spec.RenewTime)

	return l, nil
}

// putLease makes a lease, or changes the one of its version; an error says that someone else did so meanwhile.
func (k *kubernetesClients) putLease(ctx context.Context, address string, l kubeLease) error {
	o := leaseObject{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}
	o.Metadata.Name, o.Metadata.Namespace, o.Metadata.ResourceVersion = l.Name, leaseNamespace, l.Version
	o.Spec.HolderIdentity, o.Spec.LeaseTransitions = l.Holder, l.Transitions
	o.Spec.LeaseDurationSeconds = int(l.Duration / time.Second)
	o.Spec.AcquireTime, o.Spec.RenewTime = l.Acquired.UTC().Format(leaseTime), l.Renewed.UTC().Format(leaseTime)

	content, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("unable to encode the lease: %w", err)
	}

	method, path := http.MethodPost, leasesPath
	if l.Version != "" {
		method, path = http.MethodPut, leasesPath+"/"+l.Name
	}

	answer, err := k.send(ctx, address, method, path, "application/json", content)

	switch {
	case err != nil:
		return err
	case answer.code == http.StatusOK || answer.code == http.StatusCreated:
		return nil
	default:
		return fmt.Errorf("%s: %s", answer.status, answer.message())
	}
}
