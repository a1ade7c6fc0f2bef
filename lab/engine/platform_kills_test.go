package engine_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// chartLoading is the moment at which a verb with a Helm release has started: it says nothing yet, and gets the chart.
const chartLoading = "the chart is loaded"

// platformVerbs are those of talosops that bring releases and Flux.
func platformVerbs() []string { return []string{"cni", "gitops", "reconciled"} }

// platformMoments are the steps of a platform, each by a line that a run says as it begins or ends.
func platformMoments() []string {
	return []string{
		chartLoading,
		"CustomResourceDefinition gateways.gateway.networking.k8s.io is applied",
		"release kube-system/cilium: cilium 1.20.2 is installed",
		"waits: DaemonSet kube-system/cilium: ",
		"CiliumLoadBalancerIPPool talos-proxmox is applied",
		"Namespace flux-system is applied",
		"Secret flux-system/flux-system is applied",
		"release flux-system/flux-operator: flux-operator 0.59.0 is installed",
		"waits: Deployment flux-system/flux-operator: ",
		"FluxInstance flux-system/flux is applied",
		"waits: FluxInstance flux-system/flux: ",
		"FluxInstance flux-system/flux is ready",
		"GitRepository flux-system/flux-system is ready",
	}
}

// platformVictims are the processes of a run that are killed.
func platformVictims() []string {
	return []string{"talosops", "the engine", "the engine and its plugins", "all of them"}
}

// TestPlatformKills kills the first up of a cluster, each time on a lab of its own and at another moment: one more up
// brings everything that was asked for. -rounds says how often (of ten and more moments), and -seed what moments and
// processes follow from.
func TestPlatformKills(t *testing.T) {
	t.Parallel()

	begun := cmp.Or(*seed, uint64(time.Now().UnixNano())) //nolint:gosec // any number will do
	random := rand.New(rand.NewPCG(begun, 0))             //nolint:gosec // moments, no secrets
	moments, victims := platformMoments(), platformVictims()

	random.Shuffle(len(moments), func(i, j int) { moments[i], moments[j] = moments[j], moments[i] })
	random.Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })

	count := min(cmp.Or(*rounds, 1), len(moments))
	t.Logf("%d of %d moments, which follow from -seed %d", count, len(moments), begun)

	for round, moment := range moments[:count] {
		victim := victims[round%len(victims)]

		t.Run(fmt.Sprintf("%s is killed at %q", victim, moment), func(t *testing.T) {
			t.Parallel()

			p, revision := newPlatform(t)
			p.broken(moment, victim)
			p.whole(revision)
		})
	}
}

// broken begins an up that is killed at a moment.
func (p *platform) broken(moment, victim string) {
	p.Helper()

	ctx, cancel := context.WithCancel(p.Context())
	defer cancel()

	program := victim == "talosops"
	struck := false

	reached := func(w *world) bool {
		begun := strings.Contains(w.said(), moment)
		if moment == chartLoading {
			begun = len(w.commands("talosops", platformVerbs()...)) > 0
		}

		return begun && (!program || len(w.commands(victim)) > 0) // the next one, where the last ended with the line
	}

	p.w.when(ctx, reached, func() {
		struck = true

		if program {
			p.w.killCommands(victim)

			return
		}

		p.w.kill(victim != "the engine")

		if victim == "all of them" {
			p.w.killAll(p.w.commands("talosops"))
		}
	})

	began := time.Now()
	_, err := p.w.tryUp(ctx, p.stack())
	require.Error(p, err, "the run was not interrupted")
	require.True(p, struck, p.w.said())
	p.Logf("interrupted after %s", time.Since(began).Round(time.Second))

	if !program {
		p.w.forgetRun()
		p.w.recover()
	}
}

// whole sees that one more up brings everything, and that then nothing is left to do and no process.
func (p *platform) whole(revision string) {
	p.Helper()

	began := time.Now()

	p.w.up(p.stack())
	p.Logf("one more up took %s", time.Since(began).Round(time.Second))

	sync := p.ready(kustomizations, "flux-system")
	assert.Equal(p, revision, sync.Status.LastAppliedRevision)
	p.reconciled()
	p.ready(helmReleases, "cilium")

	secret, err := p.client().CoreV1().Secrets("default").Get(p.Context(), "sealed", metav1.GetOptions{})
	require.NoError(p, err)
	assert.Equal(p, "opened by Flux", string(secret.Data["password"]))

	states := revisions(p.client())
	assert.Equal(p, 1, states["deployed"])
	assert.Zero(p, states["pending-install"]+states["pending-upgrade"], "%v", states)

	p.w.up(p.stack(), optup.ExpectNoChanges())

	assert.Empty(p, p.w.commands("talosops"), "talosops works on")
	assert.Empty(p, p.w.plugins(), "plugins that work on")
}
