package platform

import (
	"context"
	"errors"
	"fmt"

	"github.com/Masterminds/semver/v3"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"talos-proxmox/talosops/kube"
)

const definitionKind = "CustomResourceDefinition"

// bundleVersion is the annotation of the Gateway API's definitions with their version.
const bundleVersion = "gateway.networking.k8s.io/bundle-version"

// readManifests reads the objects in the request's manifest files.
func (r *releaser) readManifests(ctx context.Context) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured

	for _, m := range r.req.Manifests {
		text, err := fetcher.File(ctx, m.Source, m.Digest)
		if err != nil {
			return nil, fmt.Errorf("%w; %s", err, nothingChanged)
		}

		objects, err := parseManifest(m.Source, text)
		if err != nil {
			return nil, err
		}

		all = append(all, objects...)
	}

	return all, nil
}

// runningVersion returns the version of the deployed chart; empty = none. During an unfinished upgrade that is the
// previous version, whose pods may still run.
func (r *releaser) runningVersion(context.Context) (string, error) {
	cfg, err := r.helm()
	if err != nil {
		return "", err
	}

	found, err := cfg.Releases.Deployed(r.req.Name)
	if errors.Is(err, driver.ErrNoDeployedReleases) || errors.Is(err, driver.ErrReleaseNotFound) {
		return "", nil
	}

	if err != nil {
		return "", fmt.Errorf("unable to read the releases of %s: %w", r.req.Namespace, err)
	}

	record, ok := found.(*release.Release)
	if !ok || record.Chart == nil || record.Chart.Metadata == nil {
		return "", nil
	}

	return record.Chart.Metadata.Version, nil
}

// checkVersionStep refuses an unsupported change of versions: one that skips a minor, or a downgrade to definitions
// that are older than those that stored objects use.
func (r *releaser) checkVersionStep(running string) error {
	from, err := semver.NewVersion(running)
	to, toErr := semver.NewVersion(r.req.Version)

	if !r.req.Sequential || err != nil || toErr != nil {
		return nil
	}

	minors := int64(to.Minor()) - int64(from.Minor()) //nolint:gosec // small numbers

	switch {
	case from.Major() == to.Major() && minors < -1, from.Major() == to.Major() && minors > 1:
		next := int64(from.Minor()) + minors/max(minors, -minors) //nolint:gosec // a small number

		return fmt.Errorf("%s runs, and %s would skip a minor version, which it does not support: set a version of %d.%d first; %s",
			running, r.req.Version, from.Major(), next, nothingChanged)
	case minors < 0 && len(r.req.Manifests) > 0:
		return fmt.Errorf("%s runs, and definitions of custom resources cannot go back to those of %s: set %s or newer; %s",
			running, r.req.Version, running, nothingChanged)
	}

	return nil
}

// servingAllVersions returns a copy of a definition that serves every version, which pods of an older release can use
// as well. Cilium's operator before 1.20 stops if TLSRoute has v1alpha2 and does not serve it (cilium issues 44920 and
// 45139), and that of 1.20 serves no Gateway unless v1 exists when it starts.
func servingAllVersions(definition *unstructured.Unstructured) *unstructured.Unstructured {
	served := definition.DeepCopy()

	versions, _, _ := unstructured.NestedSlice(served.Object, "spec", "versions")
	for _, one := range versions {
		if version, ok := one.(map[string]any); ok {
			version["served"] = true
		}
	}

	if len(versions) > 0 {
		_ = unstructured.SetNestedSlice(served.Object, versions, "spec", "versions") // cannot fail: it was a slice
	}

	return served
}

// applyDefinitions applies the objects of the manifest files. Definitions serve all versions while an older minor runs.
func (r *releaser) applyDefinitions(ctx context.Context, objects []*unstructured.Unstructured, running string) error {
	older := running != "" && !sameMinor(running, r.req.Version)

	for _, object := range objects {
		if older && object.GetKind() == definitionKind {
			object = servingAllVersions(object)
		}

		if err := r.retry(ctx, func(ctx context.Context) error { return r.applyUnlessOlder(ctx, object) }); err != nil {
			return err
		}
	}

	return nil
}

// applyUnlessOlder applies an object, unless the cluster has a newer version of this Gateway API definition: stored
// objects may use it, and something else installed it.
func (r *releaser) applyUnlessOlder(ctx context.Context, object *unstructured.Unstructured) error {
	if wanted := object.GetAnnotations()[bundleVersion]; wanted != "" {
		resource, err := r.cluster.resource(object.GroupVersionKind(), "")
		if err != nil {
			return fmt.Errorf("%s: %w", kube.ObjectName(object), err)
		}

		existing, err := resource.Get(ctx, object.GetName(), metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("%s: %w", kube.ObjectName(object), err)
		}

		if err == nil && isNewer(existing.GetAnnotations()[bundleVersion], wanted) {
			r.printf("%s is of the Gateway API %s, newer than %s: it is left alone", kube.ObjectName(object),
				existing.GetAnnotations()[bundleVersion], wanted)

			return nil
		}
	}

	return r.apply(ctx, object)
}

func sameMinor(a, b string) bool {
	first, err := semver.NewVersion(a)
	second, secondErr := semver.NewVersion(b)

	return err == nil && secondErr == nil && first.Major() == second.Major() && first.Minor() == second.Minor()
}

func isNewer(a, b string) bool {
	first, err := semver.NewVersion(a)
	second, secondErr := semver.NewVersion(b)

	return err == nil && secondErr == nil && first.GreaterThan(second)
}
