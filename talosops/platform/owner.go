package platform

import (
	"context"
	"fmt"
	"strings"

	release "helm.sh/helm/v4/pkg/release/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"talos-proxmox/talosops/charts"
	"talos-proxmox/talosops/kube"
)

var helmReleaseKind = schema.GroupVersionKind{Group: "helm.toolkit.fluxcd.io", Version: "v2", Kind: "HelmRelease"}

// fluxOwner returns the HelmRelease of Flux that defines the release or created its newest revision; empty = none.
func (r *releaser) fluxOwner(ctx context.Context) (string, error) {
	list, err := r.helmReleases(ctx)
	if err != nil {
		return "", err
	}

	for _, object := range list {
		if flux := charts.FluxReleaseOf(&object); flux.Name == r.req.Name && flux.Records == r.req.Namespace {
			return kube.ObjectName(&object), nil
		}
	}

	cfg, err := r.helm()
	if err != nil {
		return "", err
	}

	newest, err := r.newestRevision(cfg)
	if err != nil || newest == nil {
		return "", err
	}

	return manifestOwner(newest)
}

// helmReleases lists the cluster's HelmReleases; none if it has no Flux.
func (r *releaser) helmReleases(ctx context.Context) ([]unstructured.Unstructured, error) {
	resource, err := r.cluster.resource(helmReleaseKind, metav1.NamespaceAll)
	if meta.IsNoMatchError(err) {
		return nil, nil
	}

	if err != nil {
		return nil, err
	}

	list, err := resource.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("unable to find the owner of the release: %w", err)
	}

	return list.Items, nil
}

// manifestOwner returns the HelmRelease in the labels of a revision's objects; empty = none.
func manifestOwner(newest *release.Release) (string, error) {
	objects, err := parseManifest("the manifest of the release", []byte(newest.Manifest))
	if err != nil {
		return "", err
	}

	for _, object := range objects {
		if owner := kube.FluxOwner(object); strings.HasPrefix(owner, helmReleaseKind.Kind) {
			return owner, nil
		}
	}

	return "", nil
}
