package platform

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
)

// knownKinds is a REST mapper whose kinds never change.
type knownKinds struct{ *meta.DefaultRESTMapper }

func (knownKinds) Reset() {}

func fluxResource(kind, version, name string, spec map[string]any, generation int64, status, message string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": version, "kind": kind,
		"metadata": map[string]any{"name": name, "namespace": fluxNamespace, "generation": int64(2)}, "spec": spec,
		"status": map[string]any{"conditions": []any{map[string]any{
			"type": "Ready", "status": status, "message": message, "observedGeneration": generation,
		}}},
	}}
}

// TestSyncRefusal: while the operator waits, an error of the instance's source or Kustomization is reported, unless its
// status is of an earlier sync.
func TestSyncRefusal(t *testing.T) {
	t.Parallel()

	sync := map[string]any{"url": "https://git/fleet", "path": "./clusters/one"}
	instance := fluxResource("FluxInstance", fluxGroup, fluxInstance, map[string]any{"sync": sync}, 2, "Unknown", "in progress")
	source := func(url, status string, generation int64) *unstructured.Unstructured {
		return fluxResource("GitRepository", sourceGroup, fluxSync, map[string]any{"url": url}, generation, status, "refused")
	}
	kustomize := fluxResource(kustomization, syncGroup, fluxSync, map[string]any{"path": "./clusters/one"}, 2, "False",
		"no such folder")

	for name, c := range map[string]struct {
		objects    []runtime.Object
		kind, want string
	}{
		"the source refuses":                     {[]runtime.Object{source("https://git/fleet", "False", 2), kustomize}, "GitRepository", "refused"},
		"the Kustomization refuses":              {[]runtime.Object{source("https://git/fleet", "True", 2), kustomize}, kustomization, "no such folder"},
		"the source is another one's":            {[]runtime.Object{source("https://git/old", "False", 2)}, "", ""},
		"nothing has looked at the source yet":   {[]runtime.Object{source("https://git/fleet", "False", 1)}, "", ""},
		"the operator has not made anything yet": {nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			mapper, kinds := meta.NewDefaultRESTMapper(nil), map[schema.GroupVersionResource]string{}

			for kind, version := range map[string]string{"GitRepository": sourceGroup, kustomization: syncGroup} {
				gvk := schema.FromAPIVersionAndKind(version, kind)
				mapper.Add(gvk, meta.RESTScopeNamespace)

				plural, _ := meta.UnsafeGuessKindToResource(gvk)
				kinds[plural] = kind + "List"
			}

			client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, c.objects...)
			a := fluxWait{
				releaser: &releaser{cluster: &cluster{dynamic: client, mapper: knownKinds{mapper}}, progress: t.Output()},
				kind:     "GitRepository", refusals: map[string]int{},
			}

			of, refusal := a.syncRefusal(t.Context(), instance)
			assert.Equal(t, c.want, refusal)

			if refusal != "" {
				assert.Equal(t, c.kind, of.kind)
				assert.Equal(t, 1, a.refusals[refusal])
			}
		})
	}
}
