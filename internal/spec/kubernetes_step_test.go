package spec_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/internal/spec"
)

func TestKubernetesStep(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct{ from, to, want string }{
		"the same":              {from: "v1.34.3", to: "v1.34.3"},
		"a patch":               {from: "v1.34.3", to: "v1.34.10"},
		"a minor":               {from: "v1.34.10", to: "v1.35.0"},
		"to the release":        {from: "v1.35.0-rc.1", to: "v1.35.0"},
		"what is not a version": {from: "unknown", to: "v1.35.0"},
		"two minors": {
			from: "v1.33.9", to: "v1.35.0",
			want: "is 2 minor versions newer, and Kubernetes is upgraded by one at a time; set the latest patch of v1.34 first",
		},
		"an older patch": {
			from: "v1.34.10", to: "v1.34.9",
			want: "is older, and Kubernetes is never downgraded; set v1.34.10, or a newer one",
		},
		"an older minor": {
			from: "v1.35.0", to: "v1.34.9",
			want: "is older, and Kubernetes is never downgraded; set v1.35.0, or a newer one",
		},
		"from the release": {
			from: "v1.35.0", to: "v1.35.0-rc.1",
			want: "is older, and Kubernetes is never downgraded; set v1.35.0, or a newer one",
		},
		"another major": {
			from: "v1.35.0", to: "v2.0.0",
			want: "is another major version, to which there is no upgrade; create a new cluster",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.want, spec.CheckKubernetesUpgrade(test.from, test.to))
		})
	}
}
