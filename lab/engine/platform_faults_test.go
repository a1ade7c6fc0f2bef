package engine_test

import (
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPlatformFaults: what goes wrong while something new is brought to a cluster that Flux reconciles is said in one
// message, and one more up converges.
func TestPlatformFaults(t *testing.T) {
	t.Parallel()

	p, _ := newPlatform(t)
	p.w.up(p.stack())

	network, flux := p.pods("kube-system"), p.pods("flux-system")

	p.faults(platformFaults())
	assert.Equal(t, network, p.pods("kube-system"), "no pod of the network restarted")
	assert.Equal(t, flux, p.pods("flux-system"), "no pod of Flux restarted")
	p.faults(powerCuts())
	p.unsaid()
	p.reconciled()
}

// platformFault is one thing that goes wrong while a run brings something new to a cluster that Flux reconciles.
type platformFault struct {
	name string
	// says is what the run's error says.
	says []string
	// begins makes it, and returns what mends it.
	begins func(p *platform) (mends func())
}

func platformFaults() []platformFault {
	const nothingChanged = "nothing was changed"

	return []platformFault{
		{
			name: "the password is wrong",
			says: []string{"Flux cannot fetch its source: GitRepository flux-system/flux-system: "},
			begins: func(p *platform) func() {
				p.secrets[passwordPath] = "another"

				return func() { p.secrets[passwordPath] = p.git.password }
			},
		},
		{
			name: "the Git server refuses connections",
			says: []string{"Flux cannot fetch its source: GitRepository flux-system/flux-system: ", "connection refused"},
			begins: func(p *platform) func() {
				url := p.gitops["url"]
				p.gitops["url"] = "https://127.0.0.1:9/fleet.git"

				return func() { p.gitops["url"] = url }
			},
		},
		{
			name: "the key of SOPS is wrong",
			says: []string{"Flux cannot reconcile its source: Kustomization flux-system/flux-system: "},
			begins: func(p *platform) func() {
				other, err := age.GenerateX25519Identity()
				require.NoError(p, err)

				p.secrets[agePath] = other.String()

				return func() { p.secrets[agePath] = p.key.String() }
			},
		},
		{
			name: "the chart cannot be had", says: []string{"unable to get the chart ", nothingChanged},
			begins: func(p *platform) func() { return p.operator("chart", "/nowhere/flux-operator.tgz") },
		},
		{
			name: "the chart is another one", says: []string{"it is not what was meant: ", nothingChanged},
			begins: func(p *platform) func() { return p.operator("digest", "sha256:"+strings.Repeat("0", 64)) },
		},
	}
}

// powerCuts are faults that pods do not survive.
func powerCuts() []platformFault {
	return []platformFault{
		{
			name: "the API server is away", says: []string{"one-gitops", "the Kubernetes API has not answered for 45s: "},
			begins: func(p *platform) func() { return p.powerless("one-cp-1", "6s") },
		},
		{
			name: "a node is not ready", says: []string{"Flux' operator has not installed Flux: ", "node one-general-1 is not ready: "},
			begins: func(p *platform) func() { return p.powerless("one-general-1", "7s") },
		},
	}
}

// operator has another chart of Flux' operator.
func (p *platform) operator(key, value string) func() {
	chart := p.gitops["operator"]
	p.gitops["operator"] = map[string]any{
		"chart": p.gitops["operator"].(map[string]any)["chart"], "version": "0.59.0", key: value, //nolint:forcetypeassert // ours
	}

	return func() { p.gitops["operator"] = chart }
}

// powerless has a machine lose its power in the middle of what brings another interval to the cluster.
func (p *platform) powerless(name, interval string) func() {
	before := p.gitops["interval"]
	p.gitops["interval"], p.gitops["timeoutSeconds"] = interval, 45

	vm, _ := p.w.lab.Data.VM(p.w.machines()[name])

	p.w.when(p.Context(), func(w *world) bool { return len(w.commands("talosops", platformVerbs()...)) > 0 }, func() {
		p.w.do(p.w.lab.Data.Stop(labRoot, vm.Host, vm.ID))
	})

	return func() {
		p.gitops["interval"], p.gitops["timeoutSeconds"] = before, 600
		p.w.do(p.w.lab.Data.Start(labRoot, vm.Host, vm.ID))
	}
}

// faults are found and said in one message each, and one more up converges.
func (p *platform) faults(list []platformFault) {
	p.Helper()

	for _, fault := range list {
		mends := fault.begins(p)

		said := p.w.fails(p.stack())
		for _, words := range fault.says {
			assert.Contains(p, said, words, fault.name)
		}

		_, problem, _ := strings.Cut(said, "Diagnostics:")
		p.Logf("%s: %s", fault.name, problem)
		mends()
		p.w.up(p.stack())
	}
}
