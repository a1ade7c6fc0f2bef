package spec_test

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"talos-proxmox/internal/spec"
)

// FuzzLoad: the loader must not panic, and plans must have no collisions.
func FuzzLoad(f *testing.F) {
	add := func(all map[string]string) {
		f.Add(all["hosts"], all["templates"], all["clusters"], all["protect"], all["vmidRanges"])
	}
	files, err := filepath.Glob("testdata/plans/*.yaml")
	require.NoError(f, err)

	for _, file := range files {
		add(values(f, readFile(f, file)))
	}

	files, err = filepath.Glob("testdata/invalid/*.yaml")
	require.NoError(f, err)

	for _, file := range files {
		cases := map[string]invalidCase{}
		require.NoError(f, yaml.Unmarshal([]byte(readFile(f, file)), &cases))

		for _, c := range cases {
			add(changed(f, c.Set))
		}
	}

	o := options()
	o.CheckRoot = nil

	f.Fuzz(func(t *testing.T, hosts, templates, clusters, protect, ranges string) {
		plan, err := spec.Load(
			map[string]string{
				"hosts": hosts, "templates": templates, "clusters": clusters, "protect": protect, "vmidRanges": ranges,
			},
			o,
		)
		if err != nil {
			require.NotEmpty(t, err.Error())

			return
		}

		requireSound(t, plan)
	})
}

// requireSound checks invariants of every plan.
func requireSound(t *testing.T, plan *spec.Plan) {
	t.Helper()

	devices := map[string][]string{}
	vmids, macs, addresses, names := map[int]bool{}, map[string]bool{}, map[netip.Addr]bool{}, map[string]bool{}

	for _, template := range plan.Templates {
		if template.VMID != 0 {
			require.False(t, vmids[template.VMID])
			vmids[template.VMID] = true
		}
	}

	for _, c := range plan.Clusters {
		require.NotEmpty(t, c.Endpoint)
		require.NotEmpty(t, c.KubernetesVersion)
		require.Equal(t, 1, len(c.ControlPlanes)%2)

		for _, n := range c.Nodes() {
			require.False(t, vmids[n.VMID] || macs[n.MAC] || addresses[n.Address.Addr()] || names[n.Name], n.Name)
			require.True(t, c.NetworkOf(n).CIDR.Contains(n.Address.Addr()), n.Name)
			require.Equal(t, n.Host, n.Template.Host, n.Name)
			require.NotEmpty(t, n.Host)
			require.LessOrEqual(t, 100, n.VMID)
			require.Equal(t, len(n.GPUs) > 0, n.Template.Driver.Flavour != "", n.Name)

			for _, gpu := range n.GPUs {
				require.Equal(t, n.Host, gpu.Host, n.Name)

				for _, other := range devices[n.Host] {
					require.False(
						t, gpu.PCI == other || strings.HasPrefix(gpu.PCI, other+".") || strings.HasPrefix(other, gpu.PCI+"."),
						"%s and %s", n.Name, gpu.PCI,
					)
				}

				devices[n.Host] = append(devices[n.Host], gpu.PCI)
			}

			vmids[n.VMID], macs[n.MAC], addresses[n.Address.Addr()], names[n.Name] = true, true, true, true
		}

		require.False(t, addresses[c.VIP])
	}
}

// BenchmarkLoad250 plans 250 machines on ten hosts.
func BenchmarkLoad250(b *testing.B) {
	var hosts, clusters []any
	for i := range 10 {
		hosts = append(
			hosts,
			map[string]any{
				"name":    "pve" + string(rune('0'+i)),
				"address": netip.AddrFrom4([4]byte{10, 255, 0, byte(i + 1)}).String(),
				"ssh":     map[string]any{"acceptAnyHostKey": true},
			},
		)
	}

	for i := range 5 {
		clusters = append(clusters, map[string]any{
			"name": "c" + string(rune('0'+i)), "kubernetesVersion": "v1.35.0",
			"network":      map[string]any{"cidr": netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), 0, 0}), 16).String()},
			"controlPlane": map[string]any{"count": 3, "firstVmid": 2000 + 10*i},
			"workers":      []any{map[string]any{"name": "w", "count": 47, "firstVmid": 3000 + 100*i}},
		})
	}

	all := valuesOf(
		b,
		map[string]any{
			"hosts": hosts, "clusters": clusters, "templates": map[string]any{"talos": map[string]any{"version": "v1.12.6"}},
		},
	)
	for b.Loop() {
		plan, err := spec.Load(all, options())
		if err != nil || len(plan.Clusters) != 5 {
			b.Fatal(err)
		}
	}
}
