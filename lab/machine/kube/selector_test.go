package kube

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestLabelSelectors(t *testing.T) {
	t.Parallel()

	labels := map[string]string{"app": "proxy", "tier": "node", "role": ""}

	for selector, want := range map[string]bool{
		"": true, "app=proxy": true, "app==proxy": true, "app = proxy": true, "app=proxy,tier=node": true, "app=proxy,tier=other": false, "role": true, "!role": false,
		"role=": true, "missing=": false, "app!=proxy": false, "missing!=x": true, "app in (dns,proxy)": true, "app in (dns),tier=node": false, "app notin (dns, other)": true, "missing": false, "!missing": true,
	} {
		assert.Equal(t, want, matchesLabels(selector, labels), selector)
	}
}

func TestFieldSelectors(t *testing.T) {
	t.Parallel()

	pod := Object{Metadata: Meta{Name: "a", Namespace: "kube-system"}, Spec: PodSpec{NodeName: "node-1"}, Status: PodStatus{Phase: "Running"}}

	for selector, want := range map[string]bool{
		"metadata.name=a": true, "metadata.name!=a": false, "spec.nodeName=node-1,status.phase=Running": true, "spec.nodeName=node-2": false, "metadata.namespace==kube-system": true,
	} {
		assert.Equal(t, want, matchesFields(selector, pod), selector)
	}
}

func TestDifferences(t *testing.T) {
	t.Parallel()

	known := map[string]remembered{}
	one := Object{Metadata: Meta{Name: "one", ResourceVersion: "1"}}
	two := Object{Metadata: Meta{Name: "two"}}

	changes := func(objects ...Object) (list []string) {
		for _, e := range differences(known, objects) {
			list = append(list, e.change+" "+e.object.Metadata.Name)
		}

		return list
	}

	assert.Equal(t, []string{"ADDED one", "ADDED two"}, changes(one, two))

	one.Metadata.ResourceVersion = "2"
	assert.Empty(t, changes(one, two), "the revision alone is no change")

	two.Metadata.Labels = map[string]string{"a": "b"}
	assert.Equal(t, []string{"MODIFIED two"}, changes(one, two))
	assert.Equal(t, []string{"DELETED one"}, changes(two))
}
