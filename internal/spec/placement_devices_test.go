package spec_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/spec"
)

const gpuHosts = `
hosts:
  - name: pve2
    address: 10.0.0.3
    ssh: {acceptAnyHostKey: true}
    gpus: [{name: rtx4000, pci: "81:00", generation: ada}, {name: b40, pci: "c1:00", generation: blackwell, passthrough: raw}, {name: b40, pci: "c2:00", generation: blackwell, passthrough: raw}]
  - {name: pve1, address: 10.0.0.2, ssh: {acceptAnyHostKey: true}, gpus: [{name: rtx4000, pci: "02:00", generation: ada}, {name: rtx4000, pci: "01:00.0", generation: ada}]}
  - {name: pve3, address: 10.0.0.4, ssh: {acceptAnyHostKey: true}}
templates: {talos: {version: v1.12.6}}
clusters:
  - name: c
    kubernetesVersion: v1.35.0
    network: {cidr: 10.0.0.0/24}
    controlPlane: {hosts: [pve3]}
    gpuWorkers: `

func TestGPUPlacement(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		pools string
		want  []string
	}{
		"one goes to the first host with the GPU": {"[{name: gpu, gpu: rtx4000}]", []string{"c-gpu-1 pve1 0000:01:00.0"}},
		"several alternate between hosts with room": {
			"[{name: gpu, gpu: rtx4000, count: 3}]",
			[]string{"c-gpu-1 pve1 0000:01:00.0", "c-gpu-2 pve2 0000:81:00", "c-gpu-3 pve1 0000:02:00"},
		},
		"spread goes where the fewest are": {
			`[{name: gpu, gpu: rtx4000, count: 2, placement: spread, nodes: {"2": {host: pve1}}}]`,
			[]string{"c-gpu-1 pve2 0000:81:00", "c-gpu-2 pve1 0000:01:00.0"},
		},
		"two per machine need a host with two": {
			"[{name: gpu, gpu: rtx4000, gpusPerNode: 2}]", []string{"c-gpu-1 pve1 0000:01:00.0 0000:02:00"},
		},
		"two pools share a host that has two": {"[{name: b, gpu: rtx4000, hosts: [pve1]}, {name: a, gpu: rtx4000, hosts: [pve1], firstVmid: 4100, firstAddress: 10.0.0.60}]", []string{"c-a-1 pve1 0000:01:00.0", "c-b-1 pve1 0000:02:00"}},
		"raw GPUs go by number": {
			"[{name: gpu, gpu: b40, count: 2}]", []string{"c-gpu-1 pve2 0000:c1:00", "c-gpu-2 pve2 0000:c2:00"},
		},
		"a pool without machines keeps no GPU busy": {
			"[{name: a, gpu: b40, count: 0}, {name: b, gpu: b40, count: 1, gpusPerNode: 2}]",
			[]string{"c-b-1 pve2 0000:c1:00 0000:c2:00"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			o := options()
			o.CheckRoot = nil
			plan, err := spec.Load(values(t, gpuHosts+c.pools), o)
			require.NoError(t, err)
			requireSound(t, plan)

			var got []string

			for _, n := range plan.Clusters[0].Workers {
				text := n.Name + " " + n.Host
				for _, gpu := range n.GPUs {
					text += " " + gpu.PCI
				}

				got = append(got, text)
			}

			assert.Equal(t, c.want, got)
		})
	}
}

func TestRawGPUsOfANameServeOnePool(t *testing.T) {
	t.Parallel()

	o := options()
	o.CheckRoot = nil
	_, err := spec.Load(
		values(t, gpuHosts+"[{name: a, gpu: b40}, {name: b, gpu: b40, firstVmid: 4100, firstAddress: 10.0.0.60}]"), o,
	)
	assert.EqualError(t, err, `clusters[0].gpuWorkers[1].gpu: "b40" of pve2 is passed through by address, and c-a-1 has one of the name already; a pool needs raw GPUs of its own name; `+
		`use fewer machines, or add a GPU to hosts[].gpus`)
}

func TestControlPlanesRunPodsBesideDedicatedGPUWorkers(t *testing.T) {
	t.Parallel()

	for pools, want := range map[string]bool{
		"[{name: gpu, gpu: rtx4000}]":                           true,
		"[{name: gpu, gpu: rtx4000, dedicated: false}]":         false,
		"[{name: gpu, gpu: rtx4000}]\n    workers: [{name: w}]": false,
	} {
		o := options()
		o.CheckRoot = nil
		plan, err := spec.Load(values(t, gpuHosts+pools), o)
		require.NoError(t, err)
		assert.Equal(t, want, plan.Clusters[0].AllowSchedulingOnControlPlanes, pools)
	}
}

func TestParsePCI(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"01:00":         "0000:01:00",
		"01:00.0":       "0000:01:00.0",
		"0000:01:00":    "0000:01:00",
		"0000:01:00.0":  "0000:01:00.0",
		"0001:C1:1f.7":  "0001:c1:1f.7",
		"":              "",
		"1:0":           "",
		"01:00.8":       "",
		"01:20":         "",
		"01":            "",
		"01:00.":        "",
		"00000:01:00":   "",
		"0000:01:00.0 ": "",
		"host:01:00":    "",
		"01-00":         "",
	} {
		t.Run(fmt.Sprintf("%q", text), func(t *testing.T) {
			t.Parallel()

			got, err := spec.ParsePCI(text)
			assert.Equal(t, want, got)

			if want == "" {
				assert.ErrorContains(t, err, "lspci -Dnn | grep -i nvidia")
			}
		})
	}
}
