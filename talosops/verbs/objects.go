package verbs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/kube"
)

// objectApplier applies the objects of a verb, and deletes those that it does not want any more.
type objectApplier struct {
	*cluster.Cluster

	what    string   // the objects, for messages
	part    string   // the label of the verb
	kinds   []string // of objects that can be deleted
	objects []*unstructured.Unstructured
}

// apply retries until an API server answers. A refusal by Kubernetes ends it.
func (h *objectApplier) apply(ctx context.Context) error {
	goal := checks.Goal{
		Before: "the cluster had its " + h.what,
		Missed: "the cluster does not have its " + h.what,
		Remedy: "see what keeps the API server from answering, with talosctl --nodes <address> dmesg",
	}

	var refused *kube.RefusedError

	err := h.Until(ctx, goal, func(ctx context.Context) checks.Report {
		var last checks.Report

		for _, n := range h.ControlPlanes {
			err := h.applyAt(ctx, n.Address)
			if err == nil || errors.As(err, &refused) {
				return nil
			}

			last = checks.Problem(n.Name, h.what, "the Kubernetes API does not accept them", err.Error())
		}

		return last
	})

	if refused != nil {
		return refused
	}

	return err
}

func (h *objectApplier) applyAt(ctx context.Context, address netip.Addr) error {
	for _, o := range h.objects {
		changed, err := h.Kubernetes.ApplyObject(ctx, address, o)
		if err != nil {
			return fmt.Errorf("%s: %w", kube.ObjectName(o), err)
		}

		if changed {
			h.Print(kube.ObjectName(o) + ": applied")
		}
	}

	for _, kind := range h.kinds {
		deleted, err := h.Kubernetes.PruneObjects(ctx, address, h.part, kind, h.objects)
		for _, name := range deleted {
			h.Print(name + ": deleted, it is not set any more")
		}

		if err != nil {
			return err
		}
	}

	return nil
}
