package machine_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/factory"
	"talos-proxmox/lab/machine"
)

const (
	gpuModules = "  kernel:\n    modules: [{name: nvidia}, {name: nvidia_uvm}, {name: nvidia_drm}, {name: nvidia_modeset}]\n  sysctls:\n    net.core.bpf_jit_harden: \"1\"\n"
	noCNI      = "cluster:\n  network:\n    cni:\n      name: none\n"
)

// gpuManifests are the manifests of a cluster with GPUs.
var gpuManifests = map[string]string{
	"namespace": "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: gpu\n  labels: {pod-security.kubernetes.io/enforce: privileged}\n",
	"class":     "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: nvidia}\nhandler: nvidia\n",
	"config": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: plugin, namespace: gpu}\ndata:\n  config.yaml: |\n" +
		"    version: v1\n    sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n",
	"plugin": `apiVersion: apps/v1
kind: DaemonSet
metadata: {name: plugin, namespace: gpu}
spec:
  selector: {matchLabels: {app: plugin}}
  template:
    metadata: {labels: {app: plugin}}
    spec:
      runtimeClassName: nvidia
      hostNetwork: true
      nodeSelector: {nvidia.com/gpu.present: "true"}
      tolerations: [{operator: Exists}]
      containers:
        - name: plugin
          image: nvcr.io/nvidia/k8s-device-plugin:v0.20.0
          env: [{name: CONFIG_FILE, value: /config/config.yaml}, {name: FAIL_ON_INIT_ERROR, value: "true"}]
          volumeMounts: [{name: sockets, mountPath: /var/lib/kubelet/device-plugins}, {name: config, mountPath: /config}]
      volumes:
        - {name: sockets, hostPath: {path: /var/lib/kubelet/device-plugins}}
        - {name: config, configMap: {name: plugin}}
`,
}

// inline returns a patch with an inline manifest.
func inline(documents ...string) string {
	text := strings.ReplaceAll(strings.Join(documents, "---\n"), "\n", "\n        ")

	return "cluster:\n  inlineManifests:\n    - name: gpu\n      contents: |\n        " + text
}

// gpuCase is a cluster with a control plane and a worker with GPUs.
type gpuCase struct {
	devices    []string // PCI device ids
	extensions []string
	patch      string // of the worker
}

func completeGPUCase() gpuCase {
	return gpuCase{
		devices: []string{"0x27b2"}, patch: gpuModules,
		extensions: []string{
			"siderolabs/nvidia-open-gpu-kernel-modules-production", "siderolabs/nvidia-container-toolkit-production",
		},
	}
}

// start brings up the cluster until the worker's API answers.
func (c gpuCase) start(t *testing.T) *lab {
	t.Helper()

	l := newLab(t)
	l.use(machine.Options{
		Resolver: l.world, ExtensionVersion: factory.ExtensionVersion,
		Schematic: func(id string) (machine.Schematic, bool) {
			if id == otherSchematic {
				return machine.Schematic{Extensions: c.extensions}, true
			}

			return machine.Schematic{}, true
		},
	})
	l.patches = []string{noCNI}

	l.start(11, machinetype.TypeControlPlane, inline(gpuManifests["namespace"], gpuManifests["class"],
		gpuManifests["config"], gpuManifests["plugin"]))

	hw := l.hardware(21)
	for i, id := range c.devices {
		hw.PCI = append(hw.PCI, datacentre.PCIDevice{
			Address:  fmt.Sprintf("0000:%02d:00.0", i+1),
			Vendor:   "NVIDIA Corporation",
			Device:   "GPU",
			VendorID: "0x10de",
			DeviceID: id,
			Class:    "0x030000",
		})
	}

	system := disk()
	system.Schematic = otherSchematic
	require.NoError(t, l.WriteVolume(hw.Disks[0].Volume, system))
	l.machines.PowerOn(hw)
	l.waitForStage(21, "maintenance")
	l.apply(
		21, l.configuration(machinetype.TypeWorker, "machine:\n  nodeLabels: {nvidia.com/gpu.present: \"true\"}\n"+c.patch),
	)

	l.bootstrap()
	l.waitForAPI(21)

	return l
}

// gpuNode returns the GPUs that the worker offers, and the states of its pods.
func (l *lab) gpuNode(k kubeClient) (offered, pods string) {
	if node, found := k.getNode(21); found {
		if count, some := node.Status.Allocatable["nvidia.com/gpu"]; some {
			offered = count.String()
		}
	}

	list, err := k.CoreV1().Pods("").List(l.context(), metav1.ListOptions{FieldSelector: "spec.nodeName=node-21"})
	if err != nil {
		return offered, ""
	}

	for _, p := range list.Items {
		pods += string(p.Status.Phase)

		for _, c := range p.Status.ContainerStatuses {
			if waiting := c.State.Waiting; waiting != nil {
				pods += waiting.Reason
			}
		}
	}

	return offered, pods
}

func TestGPUChain(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		change  func(c *gpuCase)
		offered string // what the node has of nvidia.com/gpu; empty for nothing
		pods    string // what the list of pods contains
		console string // what the worker's console contains
		service string // the state of ext-nvidia-persistenced
		gate    string // what `talosops wait` names; empty when it is content
	}{
		"a whole chain offers what time slicing makes of the GPU": {
			func(*gpuCase) {}, "4", "Running", "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.195.03",
			"Running", "",
		},
		"without a GPU": {
			func(c *gpuCase) { c.devices = nil }, "", "CrashLoopBackOff",
			`error loading module \"nvidia\": load nvidia failed: no such device`, "Waiting",
			"the machine has no NVIDIA PCI device",
		},
		"with open modules for Pascal": {
			func(c *gpuCase) { c.devices[0] = "0x1b80" }, "", "CrashLoopBackOff", "System Processor (GSP)", "Waiting",
			"refuses the GPU (installed in this system is not supported by open nvidia.ko because it does not include the required GPU System Processor (GSP).): take the flavour",
		},
		"without the modules in the configuration": {
			func(c *gpuCase) { c.patch = "" }, "", "CrashLoopBackOff", `file "/sys/bus/pci/drivers/nvidia" to exist`, "Waiting",
			"the kernel module nvidia is not loaded: list nvidia, nvidia_uvm",
		},
		"with a toolkit of the other track": {
			func(c *gpuCase) { c.extensions[1] = "siderolabs/nvidia-container-toolkit-lts" }, "", "CrashLoopBackOff",
			"NVRM: API mismatch: the client has the version 580.105.08", "Waiting",
			"is of driver 570.195.03 and nvidia-container-toolkit-lts of driver 580.105.08: take both from the same track",
		},
		"without a toolkit": {
			func(c *gpuCase) { c.extensions = c.extensions[:1] }, "", "ContainerCreating", "", "",
			"the machine's image has no NVIDIA container toolkit",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			c := completeGPUCase()
			test.change(&c)
			l := c.start(t)

			l.waitForConsole(11, "created apps/v1/DaemonSet/plugin")

			kubeconfig, err := l.client(11).Kubeconfig(l.context())
			require.NoError(t, err)

			k := l.kubeFromConfig(kubeconfig)

			l.until(name, func() bool {
				_, registered := k.getNode(21)
				offered, pods := l.gpuNode(k)

				return registered && offered == test.offered && strings.Contains(pods, test.pods) &&
					strings.Contains(
						l.console(21), test.console,
					) && l.serviceState(21, "ext-nvidia-persistenced") == test.service
			})

			count, _ := strconv.Atoi(test.offered)
			output, err := l.runGate(kubeconfig, 21, max(count, 1), test.gate)

			if test.gate == "" {
				require.NoError(t, err, output)
				assert.Contains(t, output, fmt.Sprintf(`"gpus":[{"node":"node-21","count":%d}]`, count))
			} else {
				require.Error(t, err)
				assert.Contains(t, output, "interrupted before the cluster was healthy")
				assert.Contains(t, output, "node-21: GPU: ")
				assert.Contains(t, output, test.gate)
			}
		})
	}
}

func (l *lab) serviceState(n int, name string) string {
	for _, s := range l.status(n).Services {
		if s.Name == name {
			return s.State
		}
	}

	return ""
}

func TestNVIDIAExtensionsWithoutAGPUHangTheBoot(t *testing.T) {
	t.Parallel()

	c := completeGPUCase()
	c.devices = nil
	l := c.start(t)
	l.waitForConsole(21, `task startAllServices (1/1): service "ext-nvidia-persistenced" to be "up"`)
	assert.Equal(t, "booting", l.status(21).Stage)
	l.until("the boot is given up", func() bool {
		return strings.Contains(l.console(21), "boot sequence: failed") && l.bootCount(21) >= 3
	})
}

func TestFailedFirstBootOfAnUpgradeFallsBack(t *testing.T) {
	t.Parallel()

	c := completeGPUCase()
	c.devices = nil
	l := newLab(t)
	l.use(machine.Options{Resolver: l.world, Schematic: func(id string) (machine.Schematic, bool) {
		return machine.Schematic{Extensions: map[string][]string{otherSchematic: c.extensions}[id]}, true
	}})
	l.cluster(1, 0)

	_, err := l.client(11).UpgradeWithOptions(
		l.context(), client.WithUpgradeImage("factory.talos.dev/nocloud-installer/"+otherSchematic+":v1.12.7"),
		client.WithUpgradeForce(true),
	)
	require.NoError(t, err)
	l.until("the machine runs the system before the upgrade again", func() bool {
		return strings.Contains(
			l.console(11), "reverting to the previous installation (v1.12.6)",
		) &&
			l.status(11).Version == "v1.12.6" && l.status(11).Stage == "running"
	})
}

func TestManifestsAreCreatedOnce(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	l.start(11, machinetype.TypeControlPlane, inline(gpuManifests["class"]))

	c := l.waitForAPI(11)
	require.NoError(t, c.Bootstrap(l.context(), &machineapi.BootstrapRequest{}))

	l.waitForConsole(11, "created node.k8s.io/v1/RuntimeClass/nvidia")

	other := strings.Replace(gpuManifests["class"], "handler: nvidia", "handler: other", 1)
	_, err := c.ApplyConfiguration(l.context(), &machineapi.ApplyConfigurationRequest{
		Data: l.configuration(machinetype.TypeControlPlane, inline(other, gpuManifests["config"])),
		Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT,
	})
	require.NoError(t, err)
	l.waitForConsole(11, "created /v1/ConfigMap/plugin")

	classes, err := l.admin().NodeV1().RuntimeClasses().List(l.context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, classes.Items, 1)
	assert.Equal(t, "nvidia", classes.Items[0].Handler, "Talos leaves what exists as it is")

	l.applyRunning(11, machinetype.TypeControlPlane, "cluster: {extraManifests: ['https://192.0.2.1/x.yaml']}")
	l.waitForConsole(11, "set the manifest inline")
}
