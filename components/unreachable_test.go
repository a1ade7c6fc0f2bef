package components

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestRequestsThatDifferInTheirClientsAlone are not made for a control plane that does not answer.
func TestRequestsThatDifferInTheirClientsAlone(t *testing.T) {
	t.Parallel()

	const before = `{"controlPlanes": [{"name": "one-cp-1"}], "talosconfig": "a", "kubeconfig": "b", "kubernetesVersion": "v1.37.2"}`

	for name, test := range map[string]struct {
		now  string
		same bool
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
			assert.Equal(t, test.same, asksTheSame(before, test.now))
			assert.False(t, asksTheSame("", test.now), "a command that the last run did not leave")
		})
	}
}
