package charts

import (
	"crypto/sha256"
	"encoding/hex"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// FluxRelease is the Helm release of a HelmRelease of Flux. Its name and the namespace of its records identify it; its
// objects may be in another namespace.
type FluxRelease struct{ Name, Records, Namespace string }

// FluxReleaseOf returns the release of a HelmRelease, by the rules of Flux' helm-controller.
func FluxReleaseOf(o *unstructured.Unstructured) FluxRelease {
	var release helmv2.HelmRelease

	release.Name, release.Namespace = o.GetName(), o.GetNamespace()

	for name, field := range map[string]*string{
		"releaseName": &release.Spec.ReleaseName, "targetNamespace": &release.Spec.TargetNamespace,
		"storageNamespace": &release.Spec.StorageNamespace,
	} {
		*field, _, _ = unstructured.NestedString(o.Object, "spec", name)
	}

	return FluxRelease{shortenName(release.GetReleaseName()), release.GetStorageNamespace(), release.GetReleaseNamespace()}
}

// shortenName replaces the end of a name that is too long for Helm by digits of its digest, as helm-controller does
// (source: its internal/release/name.go).
func shortenName(name string) string {
	const longest, digits = 53, 12

	if len(name) <= longest {
		return name
	}

	sum := sha256.Sum256([]byte(name))

	return name[:longest-digits-1] + "-" + hex.EncodeToString(sum[:])[:digits]
}
