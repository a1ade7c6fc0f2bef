package pods

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"talos-proxmox/lab/machine/container"
)

const (
	// GPUResource is the default resource of NVIDIA's device plugin.
	GPUResource = "nvidia.com/gpu"
	// pluginSockets is the folder in which device plugins find the kubelet.
	pluginSockets = "/var/lib/kubelet/device-plugins"
)

// GPUs are a node's GPUs as its containers see them.
type GPUs struct {
	// Driver and Toolkit are the driver versions of NVIDIA's extensions; empty without them.
	Driver, Toolkit string
	// Loaded reports whether the driver's module is loaded.
	Loaded bool
	// Devices are the GPUs that the driver supports.
	Devices []container.GPU
}

func isDevicePlugin(image string) bool {
	return strings.Contains(image, "nvidia/k8s-device-plugin:") || strings.Contains(image, "nvidia/k8s-device-plugin@")
}

// pluginConfig is the part of the NVIDIA device plugin's configuration file that the lab reads.
type pluginConfig struct {
	Version string
	Flags   struct{ FailOnInitError *bool }
	Sharing struct {
		TimeSlicing struct {
			RenameByDefault bool
			Resources       []struct {
				Name, Rename string
				Replicas     int
			}
		}
	}
}

// runDevicePlugin runs the container of NVIDIA's device plugin: it registers the node's GPUs with the kubelet, or
// crashes.
func (p Pod) runDevicePlugin(gpus GPUs, c corev1.Container, nvidiaRuntime bool) State {
	config, err := p.pluginConfig(c)
	if err != nil {
		return p.crashLoop(c, Crash{Reason: "Error", Code: 1}, fmt.Sprintf("E main.go:173] unable to load config: %s\n", err))
	}

	switch {
	case !nvidiaRuntime:
		log := "I factory.go] Detected non-NVML platform: could not load NVML library: libnvidia-ml.so.1: cannot open shared object file: No such file or directory\n" +
			"E factory.go] Incompatible strategy detected auto\nE factory.go] If this is a GPU node, did you configure the NVIDIA Container Toolkit?\n"
		if fails := config.Flags.FailOnInitError; fails != nil && !*fails || Env(c, "FAIL_ON_INIT_ERROR") == "false" {
			return State{Running: true, Log: log + "I main.go] No devices found. Waiting indefinitely.\n"}
		}

		return p.crashLoop(c, Crash{Reason: "Error", Code: 1}, log+"E main.go] error starting plugins: error getting plugins: unable to create plugins: failed to construct resource managers: invalid device discovery strategy\n")
	case !gpus.Loaded:
		return p.crashLoop(
			c, Crash{Reason: "StartError", Code: 128, Message: hookFailure + "nvml error: driver not loaded: unknown"}, "",
		)
	case gpus.Driver != gpus.Toolkit:
		return p.crashLoop(
			c,
			Crash{
				Reason: "StartError", Code: 128, Message: hookFailure + "nvml error: driver/library version mismatch: unknown",
			},
			"",
		)
	case !mountsHostPath(p.Spec, c, pluginSockets):
		return p.crashLoop(
			c, Crash{Reason: "Error", Code: 1},
			"E main.go] failed to create FS watcher for /var/lib/kubelet/device-plugins/: no such file or directory\n",
		)
	}

	name, replicas := config.sharing()

	return State{
		Running: true,
		Offers:  map[string]int{name: len(gpus.Devices) * replicas},
		Log:     fmt.Sprintf("I server.go] Registered device plugin for '%s' with Kubelet\n", name),
	}
}

// hookFailure is containerd's message for a failure of NVIDIA's hook, up to the reason.
const hookFailure = "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: " +
	"error during container init: error running prestart hook #0: exit status 1, stdout: , stderr: Auto-detected mode as 'legacy'\nnvidia-container-cli: initialization error: "

// sharing returns the name of the GPU resource, and the number of replicas per GPU.
func (c pluginConfig) sharing() (name string, replicas int) {
	for _, r := range c.Sharing.TimeSlicing.Resources {
		if r.Name != GPUResource {
			continue
		}

		name = r.Rename
		if name == "" && c.Sharing.TimeSlicing.RenameByDefault {
			name = GPUResource + ".shared"
		}

		return cmp.Or(name, GPUResource), r.Replicas
	}

	return GPUResource, 1
}

// pluginConfig reads the configuration file given to the container; without one, it returns the defaults.
func (p Pod) pluginConfig(c corev1.Container) (pluginConfig, error) {
	file := Env(c, "CONFIG_FILE")

	for i, arg := range slices.Concat(c.Command, c.Args) {
		if value, found := strings.CutPrefix(arg, "--config-file="); found {
			file = value
		} else if all := slices.Concat(c.Command, c.Args); arg == "--config-file" && i+1 < len(all) {
			file = all[i+1]
		}
	}

	var config pluginConfig
	if file == "" {
		return config, nil
	}

	text, found := p.mountedFile(c, file)
	if !found {
		return config, fmt.Errorf("unable to finalize config: unable to parse config file: error opening config file: open %s: no such file or directory", file)
	}

	if err := yaml.Unmarshal([]byte(text), &config); err != nil {
		return config, fmt.Errorf("unable to finalize config: unable to parse config file: unmarshal error: %w", err)
	}

	if config.Version != "v1" {
		return config, fmt.Errorf(
			"unable to finalize config: unable to parse config file: unknown version: %s", config.Version,
		)
	}

	for _, r := range config.Sharing.TimeSlicing.Resources {
		if r.Replicas < 2 {
			return config, fmt.Errorf(
				"unable to finalize config: unable to parse config file: unmarshal error: number of replicas must be >= 2, got: %d",
				r.Replicas,
			)
		}
	}

	return config, nil
}

// mountedFile reads a file of a ConfigMap that the container mounts.
func (p Pod) mountedFile(c corev1.Container, file string) (string, bool) {
	for _, mount := range c.VolumeMounts {
		relative, inside := strings.CutPrefix(path.Clean(file), path.Clean(mount.MountPath)+"/")
		if !inside {
			continue
		}

		i := slices.IndexFunc(
			p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name && v.ConfigMap != nil },
		)
		if i < 0 {
			continue
		}

		source := p.Spec.Volumes[i].ConfigMap
		key := relative

		for _, item := range source.Items {
			if item.Path == relative {
				key = item.Key
			}
		}

		var stored corev1.ConfigMap

		if content := p.Objects("configmaps", p.Namespace, source.Name); content != nil &&
			runtime.DefaultUnstructuredConverter.FromUnstructured(content, &stored) == nil {
			text, found := stored.Data[key]

			return text, found
		}
	}

	return "", false
}

// Env returns a variable that a container sets.
func Env(c corev1.Container, name string) string {
	for _, v := range c.Env {
		if v.Name == name {
			return v.Value
		}
	}

	return ""
}

// mountsHostPath reports whether a container mounts a folder of its node.
func mountsHostPath(spec corev1.PodSpec, c corev1.Container, folder string) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(mount corev1.VolumeMount) bool {
		return slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool {
			return v.Name == mount.Name && v.HostPath != nil && path.Clean(v.HostPath.Path) == folder &&
				path.Clean(mount.MountPath) == folder
		})
	})
}
