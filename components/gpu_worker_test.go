package components

import (
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/enginetest"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/tokens"
)

func rtx4000() GPU {
	return GPU{Name: "rtx4000", PCI: "0000:01:00", Generation: "ada", Mapping: pulumi.String("rtx4000")}
}

func TestClusterWithGPUs(t *testing.T) {
	t.Parallel()

	for name, operator := range map[string]bool{"with the device plugin": false, "with the GPU Operator": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			cluster := plannedCluster(1, 2)
			cluster.GPUOperator = operator
			*cluster.worker(1) = withGPUs(*cluster.worker(1), rtx4000(), rtx4000())
			cluster.worker(1).TimeSlicing, cluster.worker(1).Dedicated = 4, true
			r := runCluster(t, enginetest.Options{}, cluster)

			req := enginetest.RequestOf[request.Wait](t, r.ByType(tokens.LocalCommand)["one-healthy"])
			if operator {
				assert.Empty(t, req.GPUs, "nothing offers GPUs before the operator is installed")
			} else {
				assert.Equal(t, []request.GPUs{{Node: "one-general-2", Count: 8}}, req.GPUs)
			}

			marked := enginetest.RequestOf[request.Mark](t, r.ByType(tokens.LocalCommand)["one-marked"])
			assert.Equal(t, []request.Marks{
				{Node: "one-cp-1"},
				{Node: "one-general-1"},
				{
					Node:   "one-general-2",
					Labels: map[string]string{"nvidia.com/gpu.present": "true", "nvidia.com/device-plugin.config": "time-slicing-4"},
					Taints: []talos.Taint{{Key: "nvidia.com/gpu", Value: "present", Effect: "NoSchedule"}},
				},
			}, marked.Marks)
		})
	}
}

func TestGPUWorkerRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()

	assertRefused(t, func() GPUWorkerArgs { return GPUWorkerArgs{Driver: "open production"} }, NewGPUWorker,
		map[string]invalidCase[GPUWorkerArgs]{
			"no GPU": {func(*GPUWorkerArgs) {}, "gpus: there are 0; use 1 to 16"},
			"no driver, and a GPU elsewhere": {
				func(a *GPUWorkerArgs) {
					a.Driver, a.Node.Machine.Host = "", "pve2"
					a.GPUs = []GPU{{Name: "rtx4000", Host: "pve1", PCI: "0000:01:00"}}
				},
				"driver: is missing; set which of NVIDIA's drivers its image has, such as open production\n" +
					"gpus[0].host: rtx4000 is on host \"pve1\", and the machine on \"pve2\"; place it where its GPU is",
			},
		})
}

func TestPCIMappingAcceptsIOMMUGroupZero(t *testing.T) {
	t.Parallel()

	r, err := enginetest.Run(enginetest.Options{}, func(ctx *pulumi.Context) error {
		_, err := NewPCIMapping(ctx, "rtx4000", PCIMappingArgs{Devices: []MappedDevice{{
			Host: "pve3", PCI: "0000:c1:00.0", ID: pulumi.String("10de:27b0"), Subsystem: pulumi.String("10de:16fa"),
			Group: pulumi.Int(0),
		}}})

		return err
	})
	require.NoError(t, err)
	assert.Equal(t, resource.NewPropertyValue([]any{map[string]any{
		"id": "10de:27b0", "node": "pve3", "path": "0000:c1:00.0", "iommuGroup": 0, "subsystemId": "10de:16fa",
	}}), r.ByType(tokens.PCIMapping)["rtx4000-mapping"].Input("maps"))
}

func TestPCIMappingRefusesIncompleteDevices(t *testing.T) {
	t.Parallel()

	for want, devices := range map[string][]MappedDevice{
		"devices: is empty; add at least one": nil,
		`devices[0]: 0000:01:00 of host "pve1" is not described in full; set host, pci, id, subsystem and group`: {
			{Host: "pve1", PCI: "0000:01:00", ID: pulumi.String("10de:27b0")},
		},
		`devices[0]: 0000:01:00 of host "" is not described in full`: {
			{PCI: "0000:01:00", ID: pulumi.String("10de:27b0"), Subsystem: pulumi.String("10de:16fa"), Group: pulumi.Int(12)},
		},
	} {
		_, err := enginetest.Run(enginetest.Options{}, func(ctx *pulumi.Context) error {
			_, err := NewPCIMapping(ctx, "rtx4000", PCIMappingArgs{Devices: devices})

			return err
		})
		assert.ErrorContains(t, err, want)
	}
}
