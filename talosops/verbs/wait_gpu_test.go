package verbs

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/goldentest"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/talosapi"
	"talos-proxmox/talosops/verbtest"
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

	golden := goldentest.NewCases(t)

	machine := func(change func(m *talosapi.GPUMachine)) func(*waitRequest, *clustertest.Fake) {
		return func(_ *waitRequest, c *clustertest.Fake) {
			m := c.Machines["127.0.9.4"]
			change(&m)
			c.Machines["127.0.9.4"] = m
		}
	}

	for name, test := range map[string]struct {
		change func(*waitRequest, *clustertest.Fake)
		offers bool // the node offers GPUs although the link is missing
	}{
		"no device": {change: machine(func(m *talosapi.GPUMachine) { m.Devices, m.Modules = nil, nil })},
		"no kernel modules in the image": {
			change: machine(func(m *talosapi.GPUMachine) { delete(m.Extensions, "nvidia-open-gpu-kernel-modules-production") }),
		},
		"modules of the wrong flavour": {
			change: machine(func(m *talosapi.GPUMachine) {
				m.Modules, m.DriverErrors = nil, []string{"installed in this system requires use of the NVIDIA open kernel modules."}
			}),
		},
		"modules and toolkit of different tracks": {
			change: machine(func(m *talosapi.GPUMachine) {
				delete(m.Extensions, "nvidia-container-toolkit-production")
				m.Extensions["nvidia-container-toolkit-lts"] = "580.105.08-v1.12.6"
			}),
		},
		"modules that are not loaded": {change: machine(func(m *talosapi.GPUMachine) { m.Modules = nil })},
		"no CUDA on a node that offers GPUs": {
			change: machine(func(m *talosapi.GPUMachine) { m.Modules = m.Modules[:1] }), offers: true,
		},
		"no toolkit": {
			change: machine(func(m *talosapi.GPUMachine) { delete(m.Extensions, "nvidia-container-toolkit-production") }),
		},
		"no RuntimeClass": {change: func(_ *waitRequest, c *clustertest.Fake) { c.GPUs.HasClass = false }},
		"a RuntimeClass of another runtime": {
			change: func(_ *waitRequest, c *clustertest.Fake) { c.GPUs.Handler = "runc" },
		},
		"no device plugin": {
			change: func(_ *waitRequest, c *clustertest.Fake) { c.GPUs.Plugins, c.GPUs.Pods = nil, nil },
		},
		"a device plugin that is not for the node": {
			change: func(_ *waitRequest, c *clustertest.Fake) { c.GPUs.Pods = nil },
		},
		"a device plugin whose pod is refused": {
			change: func(_ *waitRequest, c *clustertest.Fake) {
				c.GPUs.Pods, c.GPUs.Warnings = nil, []string{"violates PodSecurity"}
			},
		},
		"a device plugin's pod that crashes": {
			change: func(_ *waitRequest, c *clustertest.Fake) {
				c.GPUs.Pods = []kube.PluginPod{{Name: "gpu/plugin-1", Reason: "CrashLoopBackOff (driver not loaded)"}}
			},
		},
		"fewer GPUs than expected": {
			change: func(r *waitRequest, c *clustertest.Fake) {
				r.GPUs[0].Count, c.NodeList[3].Allocatable["nvidia.com/gpu"] = 8, "2"
			},
			offers: true,
		},
		"another resource": {
			change: func(r *waitRequest, _ *clustertest.Fake) { r.GPUs[0].Resource = "nvidia.com/gpu.shared" },
			offers: true,
		},
		"a machine that does not answer": {
			change: func(_ *waitRequest, c *clustertest.Fake) { c.Down["gpu 127.0.9.4"] = errors.New("no route to host") },
		},
		"a cluster that does not answer": {
			change: func(_ *waitRequest, c *clustertest.Fake) { c.GPUsErr = errors.New("403 Forbidden") },
		},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			g, cluster, _ := newTestGate(gpuWorker)
			test.change(g.req, cluster)

			if !test.offers {
				cluster.NodeList[3].Allocatable = nil
			}

			g.Timeout = 30 * time.Millisecond

			golden.Equal(t, name, g.wait(t.Context()))
		})
	}
}

func TestGateWaitsForGPUs(t *testing.T) {
	t.Parallel()

	g, cluster, _ := newTestGate(gpuWorker)
	cluster.NodeList[3].Allocatable = nil
	cluster.OnRound = func(c *clustertest.Fake, asked int) {
		if asked == 3 {
			c.NodeList[3].Allocatable = map[string]string{"nvidia.com/gpu": "2"}
		}
	}

	require.NoError(t, g.wait(t.Context()))
	assert.Contains(t, g.summary(), "; w-1 offers 2 of nvidia.com/gpu")
}
