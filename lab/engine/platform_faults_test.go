package engine_test

import (
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPlatformFaults: each fault during a change of a cluster that Flux reconciles is reported in one message, and one
// more up converges.
func TestPlatformFaults(t *testing.T) {
	t.Parallel()

	p, _ := newPlatform(t)
	p.w.up(p.stack())

	network, flux := p.pods("kube-system"), p.pods("flux-system")

	p.runFaults(platformFaults())
	assert.Equal(t, network, p.pods("kube-system"), "no pod of the network restarted")
	assert.Equal(t, flux, p.pods("flux-system"), "no pod of Flux restarted")
	p.runFaults(powerCuts())
	p.requireNoSecrets()
	p.waitReconciled()
}

// platformFault is a fault while a run changes a cluster that Flux reconciles.
type platformFault struct {
	name string
	// messages are parts of the run's error.
	messages []string
	// inject causes it, and returns a function that removes it.
	inject func(p *platform) (remove func())
}

func platformFaults() []platformFault {
	const nothingChanged = "nothing was changed"

	return []platformFault{
		{
			name:     "the password is wrong",
			messages: []string{"Flux cannot fetch its source: GitRepository flux-system/flux-system: "},
			inject: func(p *platform) func() {
				p.secrets[passwordPath] = "another"

				return func() { p.secrets[passwordPath] = p.git.password }
			},
		},
		{
			name:     "the Git server refuses connections",
			messages: []string{"Flux cannot fetch its source: GitRepository flux-system/flux-system: ", "connection refused"},
			inject: func(p *platform) func() {
				url := p.gitops["url"]
				p.gitops["url"] = "https://127.0.0.1:9/fleet.git"

				return func() { p.gitops["url"] = url }
			},
		},
		{
			name:     "the key of SOPS is wrong",
			messages: []string{"Flux cannot reconcile its source: Kustomization flux-system/flux-system: "},
			inject: func(p *platform) func() {
				other, err := age.GenerateX25519Identity()
				require.NoError(p, err)

				p.secrets[agePath] = other.String()

				return func() { p.secrets[agePath] = p.key.String() }
			},
		},
		{
			name: "the chart cannot be had", messages: []string{"unable to get the chart ", nothingChanged},
			inject: func(p *platform) func() { return p.setOperator("chart", "/nowhere/flux-operator.tgz") },
		},
		{
			name: "the chart is another one", messages: []string{"it is not what was meant: ", nothingChanged},
			inject: func(p *platform) func() { return p.setOperator("digest", "sha256:"+strings.Repeat("0", 64)) },
		},
	}
}

// powerCuts are faults that restart pods.
func powerCuts() []platformFault {
	return []platformFault{
		{
			name: "the API server is away", messages: []string{"one-gitops", "the Kubernetes API has not answered for 45s: "},
			inject: func(p *platform) func() { return p.cutPower("one-cp-1", "6s") },
		},
		{
			name: "a node is not ready", messages: []string{"Flux' operator has not installed Flux: ", "node one-general-1 is not ready: "},
			inject: func(p *platform) func() { return p.cutPower("one-general-1", "7s") },
		},
	}
}

// setOperator sets another chart of Flux' operator, and returns a function that resets it.
func (p *platform) setOperator(key, value string) func() {
	chart := p.gitops["operator"]
	p.gitops["operator"] = map[string]any{
		"chart": p.gitops["operator"].(map[string]any)["chart"], "version": "0.59.0", key: value, //nolint:forcetypeassert // ours
	}

	return func() { p.gitops["operator"] = chart }
}

// cutPower stops a machine in the middle of a run that changes Flux' interval.
func (p *platform) cutPower(name, interval string) func() {
	before := p.gitops["interval"]
	p.gitops["interval"], p.gitops["timeoutSeconds"] = interval, 45

	vm := p.w.vm(name)

	p.w.when(p.Context(), func(w *world) bool { return len(w.processes("talosops", platformVerbs()...)) > 0 }, func() {
		p.w.stopVM(vm.ID)
	})

	return func() {
		p.gitops["interval"], p.gitops["timeoutSeconds"] = before, 600
		p.w.startVM(vm.ID)
	}
}

// runFaults checks that each fault is reported, and that one more up converges.
func (p *platform) runFaults(list []platformFault) {
	p.Helper()

	for _, fault := range list {
		remove := fault.inject(p)

		output := p.w.failedUp(p.stack())
		for _, words := range fault.messages {
			assert.Contains(p, output, words, fault.name)
		}

		_, problem, _ := strings.Cut(output, "Diagnostics:")
		p.Logf("%s: %s", fault.name, problem)
		remove()
		p.w.up(p.stack())
	}
}
