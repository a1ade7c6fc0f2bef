package verbs

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/talosapi"
)

// gpuWorker makes w-1 a worker that offers two GPUs.
func gpuWorker(req *waitRequest, c *clustertest.Fake) {
	req.GPUs = []request.GPUs{{Node: "w-1", Count: 2}}
	c.NodeList[3].Allocatable = map[string]string{"cpu": "4", "nvidia.com/gpu": "2"}
	c.Machines = map[string]talosapi.GPUMachine{"127.0.9.4": {
		Devices: []string{"0000:01:00.0"}, Modules: []string{"nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm"},
		Extensions: map[string]string{
			"nvidia-open-gpu-kernel-modules-production": "570.195.03-v1.12.6", "nvidia-container-toolkit-production": "570.195.03-v1.12.6",
		},
	}}
	c.GPUs = kube.GPUCluster{
		HasClass: true,
		Handler:  "nvidia",
		Plugins:  []string{"gpu/plugin"},
		Pods:     []kube.PluginPod{{Name: "gpu/plugin-1", Running: true}},
	}
}

func TestGateNamesTheMissingLinkOfAGPU(t *testing.T) {
	t.Parallel()

	machine := func(change func(m *talosapi.GPUMachine)) func(*waitRequest, *clustertest.Fake) {
		return func(_ *waitRequest, c *clustertest.Fake) {
			m := c.Machines["127.0.9.4"]
			change(&m)
			c.Machines["127.0.9.4"] = m
		}
	}

	for name, test := range map[string]struct {
		change func(*waitRequest, *clustertest.Fake)
		want   string
		offers bool // although the link is missing
	}{
		"no device": {
			change: machine(func(m *talosapi.GPUMachine) { m.Devices, m.Modules = nil, nil }),
			want:   "the machine has no NVIDIA PCI device: see that its VM has the card's PCI mapping",
		},
		"no kernel modules in the image": {
			change: machine(func(m *talosapi.GPUMachine) { delete(m.Extensions, "nvidia-open-gpu-kernel-modules-production") }),
			want:   "the machine's image has no NVIDIA kernel modules: make its template from a schematic",
		},
		"modules of the wrong flavour": {
			change: machine(func(m *talosapi.GPUMachine) {
				m.Modules, m.Driver = nil, []string{"installed in this system requires use of the NVIDIA open kernel modules."}
			}),
			want: "refuses the GPU (installed in this system requires use of the NVIDIA open kernel modules.): take the flavour and track",
		},
		"modules and toolkit of different tracks": {
			change: machine(func(m *talosapi.GPUMachine) {
				delete(m.Extensions, "nvidia-container-toolkit-production")
				m.Extensions["nvidia-container-toolkit-lts"] = "580.105.08-v1.12.6"
			}),
			want: "is of driver 570.195.03 and nvidia-container-toolkit-lts of driver 580.105.08: take both from the same track",
		},
		"modules that are not loaded": {
			change: machine(func(m *talosapi.GPUMachine) { m.Modules = nil }),
			want:   "the kernel module nvidia is not loaded: list nvidia, nvidia_uvm, nvidia_drm and nvidia_modeset",
		},
		"no CUDA on a node that offers GPUs": {
			change: machine(func(m *talosapi.GPUMachine) { m.Modules = m.Modules[:1] }),
			want:   "the kernel module nvidia_uvm is not loaded",
			offers: true,
		},
		"no toolkit": {
			change: machine(func(m *talosapi.GPUMachine) { delete(m.Extensions, "nvidia-container-toolkit-production") }),
			want:   "the machine's image has no NVIDIA container toolkit",
		},
		"no RuntimeClass": {
			change: func(_ *waitRequest, c *clustertest.Fake) { c.GPUs.HasClass = false },
			want:   `the cluster has no RuntimeClass "nvidia": create it with handler nvidia`,
		},
		"a RuntimeClass of another runtime": {
			change: func(_ *waitRequest, c *clustertest.Fake) { c.GPUs.Handler = "runc" },
			want:   `the RuntimeClass "nvidia" has the handler "runc"`,
		},
		"no device plugin": {
			change: func(_ *waitRequest, c *clustertest.Fake) { c.GPUs.Plugins, c.GPUs.Pods = nil, nil },
			want:   "the cluster has no NVIDIA device plugin",
		},
		"a device plugin that is not for the node": {
			change: func(_ *waitRequest, c *clustertest.Fake) { c.GPUs.Pods = nil },
			want:   "gpu/plugin has no pod on the node: compare its nodeSelector, affinity and tolerations",
		},
		"a device plugin whose pod is refused": {
			change: func(_ *waitRequest, c *clustertest.Fake) {
				c.GPUs.Pods, c.GPUs.Warnings = nil, []string{"violates PodSecurity"}
			},
			want: "gpu/plugin has no pod on the node: violates PodSecurity",
		},
		"a device plugin's pod that crashes": {
			change: func(_ *waitRequest, c *clustertest.Fake) {
				c.GPUs.Pods = []kube.PluginPod{{Name: "gpu/plugin-1", Reason: "CrashLoopBackOff (driver not loaded)"}}
			},
			want: "pod gpu/plugin-1 does not run: CrashLoopBackOff (driver not loaded)",
		},
		"fewer GPUs than expected": {
			change: func(r *waitRequest, c *clustertest.Fake) {
				r.GPUs[0].Count, c.NodeList[3].Allocatable["nvidia.com/gpu"] = 8, "2"
			},
			want:   "offers 2 instead of 8 of nvidia.com/gpu, although its device plugin gpu/plugin-1 runs: the machine has 1 NVIDIA devices",
			offers: true,
		},
		"another resource": {
			change: func(r *waitRequest, _ *clustertest.Fake) { r.GPUs[0].Resource = "nvidia.com/gpu.shared" },
			want:   "offers 0 instead of 2 of nvidia.com/gpu.shared",
			offers: true,
		},
		"a machine that does not answer": {
			change: func(_ *waitRequest, c *clustertest.Fake) { c.Down["gpu 127.0.9.4"] = errors.New("no route to host") },
			want:   "Talos does not answer on 127.0.9.4: no route to host",
		},
		"a cluster that does not answer": {
			change: func(_ *waitRequest, c *clustertest.Fake) { c.GPUsErr = errors.New("403 Forbidden") },
			want:   "the Kubernetes API does not tell what its device plugin does: 403 Forbidden",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			g, cluster, _ := testGate(gpuWorker)
			test.change(g.req, cluster)

			if !test.offers {
				cluster.NodeList[3].Allocatable = nil
			}

			g.Timeout = 30 * time.Millisecond

			err := g.wait(t.Context())
			require.ErrorContains(t, err, "1 of 17 checks are open:\n  w-1: GPU: ")
			require.ErrorContains(t, err, test.want)
		})
	}
}

func TestGateWaitsForGPUs(t *testing.T) {
	t.Parallel()

	g, cluster, _ := testGate(gpuWorker)
	cluster.NodeList[3].Allocatable = nil
	cluster.OnAsk = func(c *clustertest.Fake, asked int) {
		if asked == 3 {
			c.NodeList[3].Allocatable = map[string]string{"nvidia.com/gpu": "2"}
		}
	}

	require.NoError(t, g.wait(t.Context()))
	assert.Contains(t, g.summary(), "; w-1 offers 2 of nvidia.com/gpu")
}
