package talos

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// What GPU machines and the manifests for them agree on. Labels and the taint are those of NVIDIA's own tools, so that
// the GPU Operator finds the same.
const (
	gpuLabel    = "nvidia.com/gpu.present"
	pluginLabel = "nvidia.com/device-plugin.config" // which of the plugin's configurations the machine gets
	gpuTaint    = "nvidia.com/gpu"
	gpuEffect   = "present:NoSchedule"

	runtimeClass      = "nvidia"
	pluginNamespace   = "nvidia-device-plugin"
	operatorNamespace = "gpu-operator"
	// devicePluginImage drives every track of the drivers; later versions only add to it.
	devicePluginImage = "nvcr.io/nvidia/k8s-device-plugin:v0.18.2"
	// gpuManifests is the name of the inline manifest.
	gpuManifests = "nvidia-gpu"
)

// GPUs are what a node does with its GPUs.
type GPUs struct {
	// TimeSlicing is how many pods share each GPU; 0 = one has it.
	TimeSlicing int
	// Dedicated keeps pods off the node that do not tolerate its taint.
	Dedicated bool
}

// ClusterGPUs are what a cluster's GPU nodes have in common.
type ClusterGPUs struct {
	// TimeSlicing are the nodes' different values, each with its own device plugin.
	TimeSlicing []int
	// Operator says that NVIDIA's GPU Operator brings the device plugin.
	Operator bool
}

// gpuPatches load the driver, which its extension keeps the kernel from loading by itself, and say what the node is.
func gpuPatches(n NodeConfig) []object {
	if n.GPUs == nil {
		return nil
	}

	labels := object{gpuLabel: "true", pluginLabel: pluginConfig(n.GPUs.TimeSlicing)}

	return []object{
		{"machine": object{
			"kernel": object{
				"modules": []object{{"name": "nvidia"}, {"name": "nvidia_uvm"}, {"name": "nvidia_drm"}, {"name": "nvidia_modeset"}},
			},
			"sysctls": object{"net.core.bpf_jit_harden": "1"},
		}},
		{"machine": object{"nodeLabels": labels}},
	}
}

// pluginConfig names the device plugin's configuration for a node.
func pluginConfig(timeSlicing int) string {
	if timeSlicing == 0 {
		return "exclusive"
	}

	return fmt.Sprintf("time-slicing-%d", timeSlicing)
}

// gpuObjects are the cluster's objects for its GPUs. Talos makes them and never changes them, so that what differs has
// another name.
func gpuObjects(g *ClusterGPUs) []object {
	class := object{
		"apiVersion": "node.k8s.io/v1",
		"kind":       "RuntimeClass",
		"metadata":   object{"name": runtimeClass},
		"handler":    runtimeClass,
	}
	if g.Operator {
		return []object{privilegedNamespace(operatorNamespace), class}
	}

	objects := []object{privilegedNamespace(pluginNamespace), class}

	for _, slicing := range slices.Compact(slices.Sorted(slices.Values(g.TimeSlicing))) {
		if slicing > 0 {
			objects = append(objects, object{
				"apiVersion": "v1", "kind": "ConfigMap", "metadata": pluginMetadata(slicing),
				"data": object{"config.yaml": timeSlicingConfig(slicing)},
			})
		}

		objects = append(objects, devicePlugin(slicing))
	}

	return objects
}

// privilegedNamespace lets pods mount the kubelet's socket, which Pod Security refuses elsewhere.
func privilegedNamespace(name string) object {
	labels := object{}
	for _, mode := range []string{"audit", "enforce", "warn"} {
		labels["pod-security.kubernetes.io/"+mode] = "privileged"
	}

	return object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": name, "labels": labels}}
}

func pluginMetadata(slicing int) object {
	return object{
		"name":      "nvidia-device-plugin-" + pluginConfig(slicing),
		"namespace": pluginNamespace,
		"labels":    object{"app.kubernetes.io/name": "nvidia-device-plugin"},
	}
}

// timeSlicingConfig is a configuration of the device plugin.
func timeSlicingConfig(slicing int) string {
	return fmt.Sprintf(
		"version: v1\nsharing:\n  timeSlicing:\n    resources:\n      - name: nvidia.com/gpu\n        replicas: %d\n",
		slicing,
	)
}

// devicePlugin runs on the host's network and tolerates everything, so that it works before there is a CNI.
func devicePlugin(slicing int) object {
	metadata := pluginMetadata(slicing)
	selector := object{"app.kubernetes.io/name": "nvidia-device-plugin", pluginLabel: pluginConfig(slicing)}
	mounts := []object{{"name": "kubelet", "mountPath": "/var/lib/kubelet/device-plugins"}}
	volumes := []object{{"name": "kubelet", "hostPath": object{"path": "/var/lib/kubelet/device-plugins"}}}
	environment := []object{{"name": "FAIL_ON_INIT_ERROR", "value": "true"}}

	if slicing > 0 {
		mounts = append(mounts, object{"name": "config", "mountPath": "/config", "readOnly": true})
		volumes = append(volumes, object{"name": "config", "configMap": object{"name": metadata["name"]}})
		environment = append(environment, object{"name": "CONFIG_FILE", "value": "/config/config.yaml"})
	}

	return object{
		"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata,
		"spec": object{
			"selector": object{"matchLabels": selector},
			"template": object{
				"metadata": object{"labels": selector},
				"spec": object{
					"runtimeClassName":  runtimeClass,
					"priorityClassName": "system-node-critical",
					"hostNetwork":       true,
					"nodeSelector":      object{gpuLabel: "true", pluginLabel: pluginConfig(slicing)},
					"tolerations":       []object{{"operator": "Exists"}},
					"containers": []object{{
						"name": "nvidia-device-plugin", "image": devicePluginImage, "env": environment, "volumeMounts": mounts,
						"securityContext": object{"allowPrivilegeEscalation": false, "capabilities": object{"drop": []string{"ALL"}}},
					}},
					"volumes": volumes,
				},
			},
		},
	}
}

// inlineManifests are the documents of the objects, as Talos takes them from control planes' configurations.
func inlineManifests(g *ClusterGPUs) (object, error) {
	var text strings.Builder

	for i, o := range gpuObjects(g) {
		document, err := yaml.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("unable to encode the manifests of GPUs: %w", err)
		}

		if i > 0 {
			text.WriteString("---\n")
		}

		text.Write(document)
	}

	return object{"cluster": object{"inlineManifests": []object{{"name": gpuManifests, "contents": text.String()}}}}, nil
}

// RunsGPUOperator says whether NVIDIA's GPU Operator works on a Talos version: on older ones its validator looks for
// the driver where Talos does not keep it. Oldest is the first that has it.
func RunsGPUOperator(version string) (runs bool, oldest string) {
	for _, release := range supported() {
		if release.NVIDIA.Operator {
			oldest = release.Talos

			break
		}
	}

	release, err := ReleaseOf(version)

	return err == nil && release.NVIDIA.Operator, oldest
}

// GPUOperatorValues returns the values of NVIDIA's GPU Operator chart (26.3.1 or later) for the namespace gpu-operator,
// which the cluster then has: driver and toolkit are Talos' own. The time slicing of nodes follows from their label.
func GPUOperatorValues(g ClusterGPUs) (string, error) {
	plugin := object{"enabled": true}

	configs := object{}
	for _, slicing := range g.TimeSlicing {
		configs[pluginConfig(slicing)] = "version: v1\n"
		if slicing > 0 {
			configs[pluginConfig(slicing)] = timeSlicingConfig(slicing)
		}
	}

	if len(configs) > 0 {
		plugin["config"] = object{"name": "nvidia-device-plugin", "create": true, "default": "", "data": configs}
	}

	text, err := yaml.Marshal(object{
		"driver":       object{"enabled": false},
		"toolkit":      object{"enabled": false},
		"hostPaths":    object{"driverInstallDir": "/usr/local"},
		"operator":     object{"runtimeClass": runtimeClass},
		"devicePlugin": plugin,
	})
	if err != nil {
		return "", fmt.Errorf("unable to encode the GPU Operator's values: %w", err)
	}

	return string(text), nil
}
