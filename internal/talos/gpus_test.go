package talos

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
)

func TestGPUNodesLoadTheDriverAndHaveLabels(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		gpus   *GPUs
		user   map[string]string
		labels map[string]string
		taints []Taint
	}{
		"no GPU":           {nil, nil, map[string]string{}, []Taint{}},
		"one pod for each": {&GPUs{}, nil, map[string]string{gpuLabel: "true", pluginLabel: "exclusive"}, []Taint{}},
		"time slicing": {
			&GPUs{TimeSlicing: 4}, nil, map[string]string{gpuLabel: "true", pluginLabel: "time-slicing-4"}, []Taint{},
		},
		"dedicated": {
			&GPUs{Dedicated: true}, nil,
			map[string]string{gpuLabel: "true", pluginLabel: "exclusive"},
			[]Taint{{"nvidia.com/gpu", "present", "NoSchedule"}},
		},
		"the user's own wins": {
			&GPUs{}, map[string]string{pluginLabel: "mine"}, map[string]string{gpuLabel: "true", pluginLabel: "mine"}, []Taint{},
		},
	} {
		for _, contract := range contracts {
			t.Run(name+" "+contract, func(t *testing.T) {
				t.Parallel()

				node := testNode("prod-gpu-1", RoleWorker, 40)
				node.GPUs, node.Labels = test.gpus, test.user
				cfg := generateConfig(t, testCluster(), node, contract)
				requireValid(t, cfg)

				var modules []string
				for _, module := range cfg.KernelModuleConfigs() {
					modules = append(modules, module.Name())
				}

				labels := map[string]string{}

				for key, value := range cfg.K8sNodeConfig().Labels() {
					if strings.HasPrefix(key, "nvidia.com/") {
						labels[key] = value
					}
				}

				assert.Equal(t, test.labels, labels)
				assert.Equal(t, test.taints, registeredTaints(t, cfg))
				assert.Empty(t, cfg.K8sNodeConfig().Taints(), "a worker that Talos taints would lose its labels")

				if test.gpus == nil {
					assert.Empty(t, modules)

					return
				}

				assert.Equal(t, []string{"nvidia", "nvidia_uvm", "nvidia_drm", "nvidia_modeset"}, modules)
				assert.Equal(t, "1", cfg.SysctlConfig()["net.core.bpf_jit_harden"])
			})
		}
	}
}

// manifestsOf returns the inline manifests of a control plane's configuration by kind and name.
func manifestsOf(t *testing.T, gpus *ClusterGPUs) map[string]map[string]any {
	t.Helper()

	cluster := testCluster()
	cluster.GPUs = gpus
	cfg := generateConfig(t, cluster, testNode("prod-cp-1", RoleControlPlane, 10), "v1.12")
	objects := map[string]map[string]any{}

	for _, manifest := range cfg.K8sInlineManifestConfigs() {
		require.Equal(t, "nvidia-gpu", manifest.Name())
		reader := yaml.NewDecoder(bytes.NewReader([]byte(manifest.Contents())))

		for {
			var o map[string]any

			err := reader.Decode(&o)
			if errors.Is(err, io.EOF) {
				break
			}

			require.NoError(t, err)

			objects[o["kind"].(string)+" "+o["metadata"].(map[string]any)["name"].(string)] = o
		}
	}

	return objects
}

func TestManifestsOfGPUs(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		gpus *ClusterGPUs
		want []string
	}{
		"none": {nil, nil},
		"one pod each": {
			&ClusterGPUs{TimeSlicing: []int{0, 0}},
			[]string{"Namespace nvidia-device-plugin", "RuntimeClass nvidia", "DaemonSet nvidia-device-plugin-exclusive"},
		},
		"with operator": {
			&ClusterGPUs{TimeSlicing: []int{4}, Operator: true}, []string{"Namespace gpu-operator", "RuntimeClass nvidia"},
		},
		"time slicing": {&ClusterGPUs{TimeSlicing: []int{4, 0, 4}}, []string{
			"Namespace nvidia-device-plugin", "RuntimeClass nvidia", "DaemonSet nvidia-device-plugin-exclusive",
			"ConfigMap nvidia-device-plugin-time-slicing-4", "DaemonSet nvidia-device-plugin-time-slicing-4",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			objects := manifestsOf(t, test.gpus)

			var got []string
			for key := range objects {
				got = append(got, key)
			}

			assert.ElementsMatch(t, test.want, got)
		})
	}
}

func TestTheDevicePluginWorksBeforeACNIAndOnItsOwnNodesOnly(t *testing.T) {
	t.Parallel()

	objects := manifestsOf(t, &ClusterGPUs{TimeSlicing: []int{4}})
	namespace := objects["Namespace nvidia-device-plugin"]["metadata"].(map[string]any)
	assert.Equal(t, "privileged", namespace["labels"].(map[string]any)["pod-security.kubernetes.io/enforce"])

	spec := objects["DaemonSet nvidia-device-plugin-time-slicing-4"]["spec"].(map[string]any)
	pod := spec["template"].(map[string]any)["spec"].(map[string]any)
	assert.Equal(t, true, pod["hostNetwork"])
	assert.Equal(t, "nvidia", pod["runtimeClassName"])
	assert.Equal(t, []any{map[string]any{"operator": "Exists"}}, pod["tolerations"])

	node := testNode("prod-gpu-1", RoleWorker, 40)
	node.GPUs = &GPUs{TimeSlicing: 4}

	labels := generateConfig(t, testCluster(), node, "v1.12").K8sNodeConfig().Labels()
	for key, value := range pod["nodeSelector"].(map[string]any) {
		assert.Equal(t, value, labels[key], key)
	}

	assert.Equal(
		t, spec["selector"].(map[string]any)["matchLabels"],
		spec["template"].(map[string]any)["metadata"].(map[string]any)["labels"],
	)
}

func TestGPUOperatorValuesLeaveDriverAndToolkitToTalos(t *testing.T) {
	t.Parallel()

	text, err := GPUOperatorValues(ClusterGPUs{TimeSlicing: []int{0, 4}})
	require.NoError(t, err)

	var values struct {
		Driver, Toolkit struct{ Enabled *bool }
		HostPaths       struct {
			DriverInstallDir string `yaml:"driverInstallDir"`
		} `yaml:"hostPaths"`
		DevicePlugin struct {
			Config struct {
				Create bool
				Data   map[string]string
			}
		} `yaml:"devicePlugin"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(text), &values))
	require.NotNil(t, values.Driver.Enabled)
	require.NotNil(t, values.Toolkit.Enabled)
	assert.False(t, *values.Driver.Enabled || *values.Toolkit.Enabled)
	assert.Equal(t, "/usr/local", values.HostPaths.DriverInstallDir)
	assert.True(t, values.DevicePlugin.Config.Create)
	assert.Contains(t, values.DevicePlugin.Config.Data["time-slicing-4"], "replicas: 4")
	assert.NotContains(t, values.DevicePlugin.Config.Data["exclusive"], "sharing")
}
