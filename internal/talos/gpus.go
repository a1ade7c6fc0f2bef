package talos

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Names that GPU machines and their manifests share. Labels and taint are those of NVIDIA's tools, which the GPU
// Operator expects.
const (
	gpuLabel    = "nvidia.com/gpu.present"
	pluginLabel = "nvidia.com/device-plugin.config" // selects the plugin's configuration for the machine
	gpuTaint    = "nvidia.com/gpu"
	gpuEffect   = "present:NoSchedule"

	runtimeClass      = "nvidia"
	pluginNamespace   = "nvidia-device-plugin"
	operatorNamespace = "gpu-operator"
	// devicePluginImage works with every driver track; later versions only add features.
	devicePluginImage = "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"
	// gpuManifestName is the name of the inline manifest.
	gpuManifestName = "nvidia-gpu"
)

// GPUs configures how a node shares its GPUs.
type GPUs struct {
	// TimeSlicing is how many pods share each GPU; 0 = no sharing.
	TimeSlicing int
	// Dedicated taints the node, so that only pods with a toleration run there.
	Dedicated bool
}

// ClusterGPUs configures what all GPU nodes of a cluster need.
type ClusterGPUs struct {
	// TimeSlicing are the values of the nodes; each gets its own device plugin.
	TimeSlicing []int
	// Operator leaves the device plugin to NVIDIA's GPU Operator.
	Operator bool
}

// gpuModules loads the driver, which its extension keeps the kernel from loading by itself.
func gpuModules() object {
	return object{"machine": object{
		"kernel": object{
			"modules": []object{{"name": "nvidia"}, {"name": "nvidia_uvm"}, {"name": "nvidia_drm"}, {"name": "nvidia_modeset"}},
		},
		"sysctls": object{"net.core.bpf_jit_harden": "1"},
	}}
}

func gpuLabels(n NodeConfig) map[string]string {
	if n.GPUs == nil {
		return nil
	}

	return map[string]string{gpuLabel: "true", pluginLabel: pluginConfig(n.GPUs.TimeSlicing)}
}

// pluginConfig returns the name of the device plugin's configuration for a node.
func pluginConfig(timeSlicing int) string {
	if timeSlicing == 0 {
		return "exclusive"
	}

	return fmt.Sprintf("time-slicing-%d", timeSlicing)
}

// gpuObjects returns the cluster's objects for its GPUs. Talos creates them and never updates them, so different
// contents need different names.
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

// privilegedNamespace allows pods to mount the kubelet's socket, which Pod Security forbids by default.
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

// timeSlicingConfig returns a configuration of the device plugin.
func timeSlicingConfig(slicing int) string {
	return fmt.Sprintf(
		"version: v1\nsharing:\n  timeSlicing:\n    resources:\n      - name: nvidia.com/gpu\n        replicas: %d\n",
		slicing,
	)
}

// devicePlugin uses the host network and tolerates every taint, so that it runs before a CNI is installed.
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

// gpuManifest returns the cluster's objects for its GPUs as a manifest.
func gpuManifest(g *ClusterGPUs) (string, error) {
	var text strings.Builder

	for i, o := range gpuObjects(g) {
		document, err := yaml.Marshal(o)
		if err != nil {
			return "", fmt.Errorf("unable to encode the manifests of GPUs: %w", err)
		}

		if i > 0 {
			text.WriteString("---\n")
		}

		text.Write(document)
	}

	return text.String(), nil
}

// RunsGPUOperator reports whether NVIDIA's GPU Operator works on a Talos version, and the oldest minor on which it
// does: on older ones its validator does not find the driver.
func RunsGPUOperator(version string) (runs bool, oldest string) {
	for _, release := range supportedReleases() {
		if release.NVIDIA.Operator {
			oldest = release.Talos

			break
		}
	}

	release, err := ReleaseOf(version)

	return err == nil && release.NVIDIA.Operator, oldest
}

// GPUOperatorValues returns the values of NVIDIA's GPU Operator chart (26.3.1 or later) for the namespace gpu-operator.
// Talos provides driver and toolkit; a node's label selects its time slicing.
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
