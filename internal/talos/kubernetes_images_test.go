package talos

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSplitImage(t *testing.T) {
	t.Parallel()

	for image, want := range map[string][2]string{
		"registry.k8s.io/kube-apiserver:v1.35.0":           {"registry.k8s.io/kube-apiserver", "v1.35.0"},
		"registry.example.org:5000/a/b:v1.35.0@sha256:123": {"registry.example.org:5000/a/b", "v1.35.0"},
		"registry.example.org:5000/a/b@sha256:123":         {"registry.example.org:5000/a/b", ""},
		"": {"", ""},
	} {
		repository, tag := SplitImage(image)
		assert.Equal(t, want, [2]string{repository, tag})
	}
}
