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

// chartLoading is the moment after a verb with a Helm release has started: it loads the chart, and prints nothing yet.
const chartLoading = "the chart is loaded"

// platformVerbs are the verbs of talosops about releases and Flux.
func platformVerbs() []string { return []string{"cni", "gitops", "reconciled"} }

// platformMoments are the steps of a platform, each by a line that a run prints as it begins or ends.
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
// completes it. -rounds is the number of moments, and -seed determines moments and processes.
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
			p.killedUp(moment, victim)
			p.requireConverged(revision)
		})
	}
}

// killedUp runs an up that is killed at a moment.
func (p *platform) killedUp(moment, victim string) {
	p.Helper()

	ctx, cancel := context.WithCancel(p.Context())
	defer cancel()

	p.w.options.NeverKilled = false
	program := victim == "talosops"
	killed := false

	reached := func(w *world) bool {
		begun := strings.Contains(w.output(), moment)
		if moment == chartLoading {
			begun = len(w.processes("talosops", platformVerbs()...)) > 0
		}

		return begun && (!program || len(w.processes(victim)) > 0) // the next process, if the last one ended with the line
	}

	p.w.when(ctx, reached, func() {
		killed = true

		if program {
			p.w.killProgram(victim)

			return
		}

		p.w.killEngine(victim != "the engine")

		if victim == "all of them" {
			p.w.killProcesses(p.w.processes("talosops"))
		}
	})

	began := time.Now()
	_, err := p.w.tryUp(ctx, p.stack())
	require.Error(p, err, "the run was not interrupted")
	require.True(p, killed, p.w.output())
	p.Logf("interrupted after %s", time.Since(began).Round(time.Second))

	if !program {
		p.w.forgetRun()
		p.w.recover()
	}
}

// requireConverged checks that one more up completes everything, that nothing is left to do, and no process is left.
func (p *platform) requireConverged(revision string) {
	p.Helper()

	began := time.Now()

	p.w.up(p.stack())
	p.Logf("one more up took %s", time.Since(began).Round(time.Second))

	sync := p.waitReady(kustomizations, "flux-system")
	assert.Equal(p, revision, sync.Status.LastAppliedRevision)
	p.waitReconciled()
	p.waitReady(helmReleases, "cilium")

	secret, err := p.w.kubeClient().CoreV1().Secrets("default").Get(p.Context(), "sealed", metav1.GetOptions{})
	require.NoError(p, err)
	assert.Equal(p, "opened by Flux", string(secret.Data["password"]))

	states := releaseRevisions(p.w.kubeClient())
	assert.Equal(p, 1, states["deployed"])
	assert.Zero(p, states["pending-install"]+states["pending-upgrade"], "%v", states)

	p.w.up(p.stack(), optup.ExpectNoChanges())

	assert.Empty(p, p.w.processes("talosops"), "talosops still runs")
	assert.Empty(p, p.w.plugins(), "plugins still run")
}
