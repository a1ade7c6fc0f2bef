package spec_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/spec"
)

const threeHosts = `
hosts:
  - {name: pve3, address: 10.0.0.4, ssh: {acceptAnyHostKey: true}}
  - {name: pve1, address: 10.0.0.2, ssh: {acceptAnyHostKey: true}}
  - {name: pve2, address: 10.0.0.3, ssh: {acceptAnyHostKey: true}}
templates: {talos: {version: v1.12.6}}
clusters:
  - name: c
    kubernetesVersion: v1.35.0
    network: {cidr: 10.0.0.0/24}
    controlPlane: `

func TestPlacement(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		pool string
		want []string
	}{
		"one goes to the first host by name": {"{count: 1}", []string{"pve1"}},
		"three are on three hosts":           {"{count: 3}", []string{"pve1", "pve2", "pve3"}},
		"five wrap around":                   {"{count: 5}", []string{"pve1", "pve2", "pve3", "pve1", "pve2"}},
		"a list of hosts keeps its order": {
			"{count: 3, hosts: [pve3, pve1]}", []string{"pve3", "pve1", "pve3"},
		},
		"spread keeps away from pinned machines": {
			`{count: 3, nodes: {"3": {host: pve1}}}`, []string{"pve2", "pve3", "pve1"},
		},
		"spread makes up for two pins on one host": {
			`{count: 5, nodes: {"1": {host: pve2}, "2": {host: pve2}}}`, []string{"pve2", "pve2", "pve1", "pve3", "pve1"},
		},
		"a pin may leave the list of hosts": {
			`{count: 3, hosts: [pve1, pve2], nodes: {c-cp-1: {host: pve3}}}`, []string{"pve3", "pve1", "pve2"},
		},
		"round robin goes by number, whatever is pinned": {
			`{count: 3, placement: roundRobin, nodes: {"1": {host: pve2}}}`, []string{"pve2", "pve2", "pve3"},
		},
		"explicit placement uses each machine's host": {
			`{count: 1, placement: explicit, nodes: {"1": {host: pve3}}}`, []string{"pve3"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan, err := spec.Load(values(t, threeHosts+c.pool), options())
			require.NoError(t, err)

			var got []string
			for _, n := range plan.Clusters[0].ControlPlanes {
				got = append(got, n.Host)
				assert.Equal(t, n.Host, n.Template.Host, "a machine's template is on its own host")
			}

			assert.Equal(t, c.want, got)
		})
	}
}

func TestHostPinned(t *testing.T) {
	t.Parallel()
	plan, err := spec.Load(
		values(t, threeHosts+`{count: 3, hosts: [pve1], nodes: {"2": {host: pve1}, "3": {cores: 4}}}`), options(),
	)
	require.NoError(t, err)

	var pinned []bool
	for _, n := range plan.Clusters[0].ControlPlanes {
		pinned = append(pinned, n.HostPinned)
	}

	assert.Equal(t, []bool{false, true, false}, pinned)
}

func TestOnlyTemplatesInUseArePlanned(t *testing.T) {
	t.Parallel()

	text := `{count: 1, hosts: [pve2]}
    workers:
      - {name: w, count: 1, hosts: [pve3], template: other}
      - {name: none, count: 0, template: idle}
`
	all := values(t, threeHosts+text)
	all["templates"] = `{"talos":{"version":"v1.12.6"},"other":{"version":"v1.12.6","arch":"amd64","source":"iso"},"idle":{"version":"v1.12.6"}}`
	plan, err := spec.Load(all, options())
	require.NoError(t, err)
	require.Len(t, plan.Templates, 2)
	assert.Equal(
		t, []any{"other", "pve3", 0}, []any{plan.Templates[0].Key, plan.Templates[0].Host, plan.Templates[0].VMID},
		"an ISO has no VM",
	)
	assert.Equal(
		t, []any{"talos", "pve2", 902}, []any{plan.Templates[1].Key, plan.Templates[1].Host, plan.Templates[1].VMID},
	)
}

func TestAHostWithoutImageTemplatesNeedsNoHostKey(t *testing.T) {
	t.Parallel()
	_, err := spec.Load(changed(t, map[string]any{"hosts[1].ssh": nil, "templates.talos.source": "iso"}), options())
	require.NoError(t, err)
	_, err = spec.Load(
		changed(
			t,
			map[string]any{
				"hosts[1].ssh": nil, "clusters[0].controlPlane.hosts": []any{"pve1"}, "clusters[0].workers[0].hosts": []any{"pve1"},
			},
		),
		options(),
	)
	require.NoError(t, err)
}
