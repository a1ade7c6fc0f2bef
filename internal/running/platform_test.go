package running_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/running"
	"talos-proxmox/internal/spec"
)

// TestACNIIsNotLeftToNobody where the last run installed it.
func TestACNIIsNotLeftToNobody(t *testing.T) {
	t.Parallel()

	plan := planOf(t, stackFile)
	problems := running.KeptCNIs(plan, map[string]bool{"one": true})
	require.Len(t, problems, 1)
	assert.Contains(t, problems[0].String(), `clusters[0].cni.kind: "none" would leave Cilium, which brings the pods of `+
		"cluster one their network, to nobody; set cilium")

	assert.Empty(t, running.KeptCNIs(plan, nil))

	plan.Clusters[0].CNI = &spec.CNI{}
	assert.Empty(t, running.KeptCNIs(plan, map[string]bool{"one": true}))
}

// TestFluxThatStaysIsSaid where the last run brought it, and the plan has it no more.
func TestFluxThatStaysIsSaid(t *testing.T) {
	t.Parallel()

	plan := planOf(t, stackFile)
	assert.Equal(t, []string{
		"clusters[0].gitops: is not set any more: Flux and all that it made stay in cluster one, and it keeps reconciling what " +
			"it was told last; docs/platform.md says how to take it out",
	}, running.LeftFlux(plan, map[string]bool{"one": true}))

	assert.Empty(t, running.LeftFlux(plan, nil))

	plan.Clusters[0].GitOps = &spec.GitOps{}
	assert.Empty(t, running.LeftFlux(plan, map[string]bool{"one": true}))
}
