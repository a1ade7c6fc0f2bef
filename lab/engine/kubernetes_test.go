package engine_test

import (
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
)

// TestKubernetesStaysOnTheModel: the model of Kubernetes cannot be upgraded, which ends the run before anything is
// changed; an upgrade on real Kubernetes is TestRealKubernetesUpgrade.
func TestKubernetesStaysOnTheModel(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := stack{Network: w.network, Clusters: []cluster{one(1, 0)}}
	file := s.yaml(t)

	older := strings.Replace(file, "kubernetesVersion: v1.37.2", "kubernetesVersion: v1.36.1", 1)
	w.up(older)

	said := w.fails(file)
	assert.Contains(t, said, "the Kubernetes API cannot be upgraded from v1.36.1 to v1.37.2: the lab's model of Kubernetes")
	assert.Contains(t, said, "start the lab with --kubernetes=real")

	w.up(older, optup.ExpectNoChanges())
}
