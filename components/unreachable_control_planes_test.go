package components

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/internal/enginetest"
	"talos-proxmox/internal/vmlookup"
)

func TestDifferOnlyIn(t *testing.T) {
	t.Parallel()

	const before = `{"controlPlanes": [{"name": "one-cp-1"}], "talosconfig": "a", "kubeconfig": "b", "kubernetesVersion": "v1.37.2"}`

	for name, test := range map[string]struct {
		request string
		same    bool
	}{
		"other clients": {
			`{"kubernetesVersion": "v1.37.2", "talosconfig": "c", "kubeconfig": "d", "controlPlanes": [{"name": "one-cp-1"}]}`, true,
		},
		"another version": {
			`{"controlPlanes": [{"name": "one-cp-1"}], "talosconfig": "a", "kubeconfig": "b", "kubernetesVersion": "v1.37.3"}`, false,
		},
		"another node": {
			`{"controlPlanes": [{"name": "one-cp-2"}], "talosconfig": "a", "kubeconfig": "b", "kubernetesVersion": "v1.37.2"}`, false,
		},
		"none": {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			clients := []string{"talosconfig", "kubeconfig"}
			assert.Equal(t, test.same, differOnlyIn(clients, before, test.request))
			assert.False(t, differOnlyIn(clients, "", test.request), "a command that did not exist")
		})
	}
}

// TestClusterThatIsOffHasNoUnreachableControlPlane previews a bootstrapped cluster that is off: no run continues
// without some of its control planes.
func TestClusterThatIsOffHasNoUnreachableControlPlane(t *testing.T) {
	t.Parallel()

	yes := func(string) bool { return true }
	r := runKnownCluster(
		t, enginetest.Options{Preview: true}, plannedCluster(3, 0), vmlookup.Run{Existed: yes, Bootstrapped: yes},
	)
	assert.NotContains(t, strings.Join(r.Warnings(), "\n"), "does not answer as a member of its cluster")
}
