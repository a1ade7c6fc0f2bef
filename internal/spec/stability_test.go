package spec_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/spec"
)

// identity is what a machine keeps unless its own pool or cluster changes.
type identity struct {
	VMID         int
	MAC, Address string
	NICs         string
	// GPUs are the mappings or, of raw GPUs, the addresses, and the class of the template.
	GPUs string
}

func identities(p *spec.Plan) map[string]identity {
	all := map[string]identity{}

	for _, c := range p.Clusters {
		for _, n := range c.Nodes() {
			all[n.Name] = identity{
				VMID: n.VMID, MAC: n.MAC, Address: n.Address.String(), NICs: fmt.Sprint(n.ExtraNICs), GPUs: gpusOf(n),
			}
		}
	}

	return all
}

func gpusOf(n spec.Node) string {
	var text []string

	for _, gpu := range n.GPUs {
		if gpu.Raw {
			text = append(text, gpu.Host+" "+gpu.PCI)

			continue
		}

		text = append(text, gpu.Name)
	}

	return fmt.Sprint(text, n.Template.Key)
}

// randomConfig is a configuration that a seed determines, with changes that users make. Every pool sets its first VMID
// and address, as several pools must.
type randomConfig struct {
	random   *rand.Rand
	hosts    []any
	clusters []map[string]any
	serial   int
}

func newRandomConfig(seed uint64) *randomConfig {
	w := &randomConfig{random: rand.New(rand.NewPCG(seed, 2))} //nolint:gosec // a test's own randomness
	for range 2 + w.random.IntN(4) {
		w.addHost()
	}

	for range 1 + w.random.IntN(3) {
		w.addCluster()
	}

	return w
}

func (w *randomConfig) next() int {
	w.serial++

	return w.serial
}

func (w *randomConfig) addHost() {
	n := w.next()

	gpus := make([]any, 16) // more than all pools together need, since all of them start with the first host
	for i := range gpus {
		gpus[i] = map[string]any{"name": "rtx4000", "pci": fmt.Sprintf("%02x:00", i+1), "generation": "ada"}
	}

	w.hosts = append(w.hosts, map[string]any{
		"name":    fmt.Sprintf("pve%d", n),
		"address": fmt.Sprintf("10.255.0.%d", n),
		"ssh":     map[string]any{"acceptAnyHostKey": true},
		"gpus":    gpus,
	})
}

func (w *randomConfig) addCluster() {
	n := w.next()
	cluster := map[string]any{
		"name": fmt.Sprintf("c%d", n), "kubernetesVersion": "v1.35.0",
		"network":      map[string]any{"cidr": fmt.Sprintf("10.%d.0.0/16", n), "vip": fmt.Sprintf("10.%d.0.5", n)},
		"controlPlane": map[string]any{"count": 1 + 2*w.random.IntN(3), "firstVmid": 2000 + 10*n},
		"workers":      []any{},
		"gpuWorkers": []any{map[string]any{
			"name":         "gpu",
			"gpu":          "rtx4000",
			"count":        w.random.IntN(3),
			"firstVmid":    4000 + 10*n,
			"firstAddress": fmt.Sprintf("10.%d.0.200", n),
		}},
	}

	w.clusters = append(w.clusters, cluster)
	for range w.random.IntN(4) {
		w.addPool()
	}
}

func (w *randomConfig) addPool() {
	n := w.next()
	c := w.clusters[w.random.IntN(len(w.clusters))]

	var base int

	_, _ = fmt.Sscanf(c["network"].(map[string]any)["cidr"].(string), "10.%d.", &base)
	c["workers"] = append(c["workers"].([]any), map[string]any{
		"name":         fmt.Sprintf("p%d", n),
		"count":        w.random.IntN(5),
		"firstVmid":    3000 + 10*n,
		"firstAddress": fmt.Sprintf("10.%d.%d.10", base, n),
		"extraNICs":    []any{map[string]any{"bridge": "vmbr1", "cidr": fmt.Sprintf("172.16.%d.0/24", n)}},
	})
}

func (w *randomConfig) somePools() []any {
	return w.clusters[w.random.IntN(len(w.clusters))]["workers"].([]any)
}

func (w *randomConfig) shuffle() {
	w.random.Shuffle(len(w.hosts), func(i, j int) { w.hosts[i], w.hosts[j] = w.hosts[j], w.hosts[i] })
	w.random.Shuffle(len(w.clusters), func(i, j int) { w.clusters[i], w.clusters[j] = w.clusters[j], w.clusters[i] })

	for _, c := range w.clusters {
		pools := c["workers"].([]any)
		w.random.Shuffle(len(pools), func(i, j int) { pools[i], pools[j] = pools[j], pools[i] })
	}
}

func (w *randomConfig) removePool() {
	c := w.clusters[w.random.IntN(len(w.clusters))]
	c["workers"] = fewer(w, c["workers"].([]any), 0)
}

func (w *randomConfig) removeCluster() { w.clusters = fewer(w, w.clusters, 1) }
func (w *randomConfig) removeHost()    { w.hosts = fewer(w, w.hosts, 1) }

// fewer removes one element of a list with more than least.
func fewer[E any](w *randomConfig, list []E, least int) []E {
	if len(list) <= least {
		return list
	}

	i := w.random.IntN(len(list))

	return slices.Delete(slices.Clone(list), i, i+1)
}

func (w *randomConfig) scalePool() {
	if pools := w.somePools(); len(pools) > 0 {
		pools[w.random.IntN(len(pools))].(map[string]any)["count"] = w.random.IntN(8)
	}
}

func (w *randomConfig) scaleGPUWorkers() {
	c := w.clusters[w.random.IntN(len(w.clusters))]
	c["gpuWorkers"].([]any)[0].(map[string]any)["count"] = w.random.IntN(3)
}

func (w *randomConfig) scaleControlPlanes() {
	c := w.clusters[w.random.IntN(len(w.clusters))]
	c["controlPlane"].(map[string]any)["count"] = 1 + 2*w.random.IntN(4)
}

func (w *randomConfig) resizePool() {
	if pools := w.somePools(); len(pools) > 0 {
		pools[w.random.IntN(len(pools))].(map[string]any)["memoryMiB"] = 2048 + 1024*w.random.IntN(8)
	}
}

func (w *randomConfig) plan(t *testing.T) *spec.Plan {
	t.Helper()
	plan, err := spec.Load(valuesOf(t, map[string]any{
		"hosts": w.hosts, "clusters": w.clusters, "templates": map[string]any{"talos": map[string]any{"version": "v1.12.6"}},
	}), options())
	require.NoError(t, err)

	return plan
}

func TestIdentitiesAreStable(t *testing.T) {
	t.Parallel()

	const seeds, steps = 60, 25
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()

			w := newRandomConfig(seed)
			changes := []struct {
				name string
				make func()
			}{
				{"shuffle", w.shuffle},
				{"add host", w.addHost},
				{"add cluster", w.addCluster},
				{"add pool", w.addPool},
				{"remove host", w.removeHost},
				{"remove cluster", w.removeCluster},
				{"remove pool", w.removePool},
				{"scale pool", w.scalePool},
				{"scale control planes", w.scaleControlPlanes},
				{"scale GPU workers", w.scaleGPUWorkers},
				{"resize pool", w.resizePool},
			}

			before, survivors := identities(w.plan(t)), 0
			for range steps {
				change := changes[w.random.IntN(len(changes))]
				change.make()

				after := identities(w.plan(t))
				for name, was := range before {
					if is, still := after[name]; still {
						survivors++

						require.Equal(t, was, is, "%s changed by %q", name, change.name)
					}
				}

				before = after
			}

			assert.Positive(t, survivors)
		})
	}
}

func TestDefaultIdentitiesAreStable(t *testing.T) {
	t.Parallel()
	before, err := spec.Load(changed(t, nil), options())
	require.NoError(t, err)

	for name, set := range map[string]map[string]any{
		"a host is added in front": {"hosts": []any{
			map[string]any{"name": "aaa0", "address": "10.0.0.9", "ssh": map[string]any{"acceptAnyHostKey": true}},
			map[string]any{"name": "pve2", "address": "10.0.0.3", "ssh": map[string]any{"acceptAnyHostKey": true}},
			map[string]any{"name": "pve1", "address": "10.0.0.2", "ssh": map[string]any{"acceptAnyHostKey": true}},
		}},
		"control planes grow":   {"clusters[0].controlPlane.count": 5},
		"control planes shrink": {"clusters[0].controlPlane.count": 1},
		"workers grow":          {"clusters[0].workers[0].count": 9},
		"a template is newer":   {"templates.talos.version": "v1.12.7"},
		"the VIP moves":         {"clusters[0].network.vip": "10.0.0.6"},
		"a machine is pinned":   {"clusters[0].workers[0].nodes": map[string]any{"1": map[string]any{"host": "pve2"}}},
		"a machine has its own memory": {
			"clusters[0].workers[0].nodes": map[string]any{"2": map[string]any{"memoryMiB": 8192}},
		},
		"machines get another card": {"clusters[0].network.bridge": "vmbr7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			after, err := spec.Load(changed(t, set), options())
			require.NoError(t, err)

			now := identities(after)
			for machine, was := range identities(before) {
				if is, still := now[machine]; still {
					assert.Equal(t, was, is, machine)
				}
			}

			assert.Contains(t, now, "prod-cp-1")
			assert.Contains(t, now, "prod-general-1")
		})
	}
}

func TestOverridesChangeOnlyTheirMachine(t *testing.T) {
	t.Parallel()
	before, err := spec.Load(changed(t, nil), options())
	require.NoError(t, err)
	after, err := spec.Load(
		changed(t, map[string]any{"clusters[0].controlPlane.nodes": map[string]any{"prod-cp-2": map[string]any{
			"cores": 4, "memoryMiB": 8192, "labels": map[string]any{"a": "b"}, "patches": []any{"machine: {}"},
		}}}),
		options(),
	)
	require.NoError(t, err)

	for i, n := range before.Clusters[0].Nodes() {
		is := after.Clusters[0].Nodes()[i]
		if n.Name != "prod-cp-2" {
			assert.Equal(t, n, is)

			continue
		}

		n.Cores, n.MemoryMiB, n.Labels, n.Patches = 4, 8192, map[string]string{"a": "b"}, []string{"machine: {}\n"}
		n.PatchPaths = []string{"clusters[0].controlPlane.nodes.prod-cp-2.patches[0]"}
		n.OverridePaths = map[string]string{
			"cores":     "clusters[0].controlPlane.nodes.prod-cp-2.cores",
			"datastore": "templates.talos.datastore", // as of all
			"memoryMiB": "clusters[0].controlPlane.nodes.prod-cp-2.memoryMiB",
		}
		assert.Equal(t, n, is)
	}
}

func TestMACsDependOnStackAndName(t *testing.T) {
	t.Parallel()

	seen := map[string]string{}

	for _, stack := range []string{"dev", "prod"} {
		o := options()
		o.Stack = stack
		plan, err := spec.Load(
			changed(
				t,
				map[string]any{
					"clusters[0].workers[0].count": 100, "clusters[0].workers[0].extraNICs": []any{map[string]any{"bridge": "vmbr1"}},
				},
			),
			o,
		)
		require.NoError(t, err)

		for _, n := range plan.Clusters[0].Nodes() {
			cards := []string{n.MAC}
			for _, nic := range n.ExtraNICs {
				cards = append(cards, nic.MAC)
			}

			for _, card := range cards {
				assert.Regexp(t, `^02(:[0-9a-f]{2}){5}$`, card)
				assert.Empty(t, seen[card], "%s of %s", card, n.Name)
				seen[card] = stack + "/" + n.Name
			}
		}
	}

	assert.Len(t, seen, 2*(3+2*100))
}
