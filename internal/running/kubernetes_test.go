package running_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/internal/running"
)

func TestKubernetesSteps(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		runs, planned string // runs: commas between versions
		want          string
	}{
		"a minor":              {runs: "v1.34.3", planned: "v1.35.0"},
		"between two versions": {runs: "v1.34.3,v1.35.0", planned: "v1.35.0"},
		"nothing is known":     {planned: "v1.30.0"},
		"two minors": {
			runs: "v1.33.1,v1.34.3", planned: "v1.35.0",
			want: `clusters[0].kubernetesVersion: "v1.35.0" is 2 minor versions newer, and Kubernetes is upgraded by one at a time; set the latest patch of v1.34 first`,
		},
		"back": {
			runs: "v1.34.3,v1.35.0", planned: "v1.34.3",
			want: `clusters[0].kubernetesVersion: "v1.34.3" is older, and Kubernetes is never downgraded; set v1.35.0, or a newer one`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			plan := planOf(t, strings.Replace(stackFile, "v1.35.0", test.planned, 1))
			runs := map[string][]string{"other": {"v1.20.0"}}

			if test.runs != "" {
				runs["one"] = strings.Split(test.runs, ",")
			}

			var said string
			for _, p := range running.KubernetesSteps(plan, runs) {
				said += p.String()
			}

			assert.Equal(t, test.want, said)
		})
	}
}
