package components

import (
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/urn"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/machine"
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

func TestAClusterWithGPUs(t *testing.T) {
	t.Parallel()

	for name, operator := range map[string]bool{"with the device plugin": false, "with the GPU Operator": true} {
		for way, preview := range map[string]bool{"up": false, "preview": true} {
			t.Run(name+" "+way, func(t *testing.T) {
				t.Parallel()

				cluster := plannedCluster(1, 2)
				cluster.GPUOperator = operator
				*cluster.worker(1) = withGPUs(*cluster.worker(1), rtx4000(), rtx4000())
				cluster.worker(1).TimeSlicing, cluster.worker(1).Dedicated = 4, true
				r, _ := runCluster(t, enginetest.Options{Preview: preview}, cluster, false)

				assert.Equal(t, []string{"one-general-2"}, r.Names(GPUWorkerType))
				assert.Equal(t, []string{"one-cp-1", "one-general-1", "one-general-2"}, r.Names(TalosNodeType))
				assert.Contains(t, r.Of(tokens.VirtualMachine)["one-general-2-vm"].DependsOn(), "talos-pve2-build")

				if preview {
					return
				}

				asked := enginetest.Asked[request.Wait](t, r.Of(tokens.LocalCommand)["one-healthy"])

				if operator {
					assert.Empty(t, asked.GPUs, "nothing offers GPUs before the operator is installed")
				} else {
					assert.Equal(t, []request.GPUs{{Node: "one-general-2", Count: 8}}, asked.GPUs)
				}

				marked := enginetest.Asked[request.Mark](t, r.Of(tokens.LocalCommand)["one-marked"])
				assert.Equal(t, []request.Marks{
					{Node: "one-cp-1"},
					{Node: "one-general-1"},
					{
						Node:   "one-general-2",
						Labels: map[string]string{"nvidia.com/gpu.present": "true", "nvidia.com/device-plugin.config": "time-slicing-4"},
						Taints: []talos.Taint{{Key: "nvidia.com/gpu", Value: "present", Effect: "NoSchedule"}},
					},
				}, marked.Marks)

				patches := text(r.Of(tokens.ConfigurationApply)["one-general-2-configuration"].Input("configPatches"))
				assert.Contains(t, patches, "registerWithTaints")
				assert.NotContains(t, patches, "nodeTaints", "a worker that Talos were to taint would lose its labels")
				assert.Contains(t, patches, "nvidia_uvm")
				assert.NotContains(
					t, text(r.Of(tokens.ConfigurationApply)["one-general-1-configuration"].Input("configPatches")), "nvidia",
				)
			})
		}
	}
}

func TestAControlPlaneThatGainsOrLosesItsGPUStaysTheSameMachine(t *testing.T) {
	t.Parallel()

	parents := map[bool]string{}

	for _, gpu := range []bool{false, true} {
		cluster := plannedCluster(1, 0)
		if gpu {
			*cluster.controlPlane(0) = withGPUs(*cluster.controlPlane(0), rtx4000())
		}

		r, _ := runCluster(t, enginetest.Options{}, cluster, false)
		node := r.Of(TalosNodeType)["one-cp-1"].Request
		require.Len(t, node.GetAliases(), 1)
		alias := node.GetAliases()[0].GetSpec().GetParentUrn()
		parents[gpu] = node.GetParent()
		assert.Equal(
			t, map[bool]string{false: GPUWorkerType, true: TalosClusterType}[gpu], string(urn.URN(alias).Type()),
			"its parent before",
		)
		assert.Equal(
			t, map[bool]string{false: TalosClusterType, true: GPUWorkerType}[gpu], string(urn.URN(node.GetParent()).Type()),
			"its parent now",
		)
	}

	assert.NotEqual(t, parents[true], parents[false])
}

func TestGPUWorkersAreRefusedWithTheirProblems(t *testing.T) {
	t.Parallel()

	refuse(t, func() GPUWorkerArgs { return GPUWorkerArgs{Driver: "open production"} }, NewGPUWorker,
		map[string]refusal[GPUWorkerArgs]{
			"no GPU": {func(*GPUWorkerArgs) {}, "gpus: there are 0; use 1 to 16"},
			"no driver, and a GPU elsewhere": {
				func(a *GPUWorkerArgs) {
					a.Driver, a.Node.Machine.Node = "", "pve2"
					a.GPUs = []GPU{{Name: "rtx4000", Node: "pve1", PCI: "0000:01:00"}}
				},
				"driver: is missing; set which of NVIDIA's drivers its image has, such as open production\n" +
					"gpus[0].node: rtx4000 is on host \"pve1\", and the machine on \"pve2\"; place it where its GPU is",
			},
		})
}

func TestPCIMappingIsComplete(t *testing.T) {
	t.Parallel()

	r, err := enginetest.Run(enginetest.Options{}, func(ctx *pulumi.Context) error {
		prepared, err := machine.NewSecrets(ctx, "prepared", &machine.SecretsArgs{})
		if err != nil {
			return err
		}

		_, err = NewPCIMapping(ctx, "rtx4000", PCIMappingArgs{HostsReady: pulumi.StringArray{
			after(ctx, "pve1", prepared),
		}, Devices: []MappedDevice{
			{
				Node:      "pve1",
				PCI:       "0000:01:00",
				ID:        pulumi.String("10de:27b0"),
				Subsystem: pulumi.String("10de:16fa"),
				Group:     pulumi.Int(12),
			},
			{
				Node:      "pve3",
				PCI:       "0000:c1:00.0",
				ID:        pulumi.String("10de:27b0"),
				Subsystem: pulumi.String("10de:16fa"),
				Group:     pulumi.Int(0),
			},
		}})

		return err
	})
	require.NoError(t, err)

	made := r.Of(tokens.PCIMapping)["rtx4000-mapping"]
	assert.Equal(t, "rtx4000", made.Parent)
	require.Len(t, made.Request.GetDependencies(), 1)
	assert.Contains(t, made.Request.GetDependencies()[0], "::prepared")

	for property, value := range map[string]any{
		"name":                "rtx4000",
		"mediatedDevices":     false,
		"maps[0].id":          "10de:27b0",
		"maps[0].node":        "pve1",
		"maps[0].path":        "0000:01:00",
		"maps[0].iommuGroup":  12,
		"maps[0].subsystemId": "10de:16fa", "maps[1].node": "pve3", "maps[1].path": "0000:c1:00.0", "maps[1].iommuGroup": 0,
	} {
		assert.Equal(t, resource.NewPropertyValue(value), made.Input(property), property)
	}
}

func TestPCIMappingRefusesHalfADescription(t *testing.T) {
	t.Parallel()

	for want, devices := range map[string][]MappedDevice{
		"devices: is empty; add at least one": nil,
		`devices[0]: 0000:01:00 of host "pve1" is not described in full; set node, pci, id, subsystem and group`: {
			{Node: "pve1", PCI: "0000:01:00", ID: pulumi.String("10de:27b0")},
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
