package cluster

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/talosapi"
)

const defaultGPUResource = "nvidia.com/gpu"

// GPUResource returns the resource name of a GPU.
func GPUResource(e request.GPUs) string { return cmp.Or(e.Resource, defaultGPUResource) }

// CheckGPUs checks the nodes that must offer GPUs. listed are the nodes that the control plane at address returned.
func (c *Cluster) CheckGPUs(
	ctx context.Context, gpus []request.GPUs, nodes []request.Node, listed []kube.Node, address netip.Addr,
) checks.Report {
	var r checks.Report

	for _, e := range gpus {
		n := nodes[slices.IndexFunc(nodes, func(n request.Node) bool { return n.Name == e.Node })]

		f := c.checkGPU(ctx, e, n, listed, address)
		f.Node, f.Check = e.Node, GPUCheck
		r = append(r, f)
	}

	return r
}

func (c *Cluster) checkGPU(
	ctx context.Context, e request.GPUs, n request.Node, listed []kube.Node, address netip.Addr,
) checks.Finding {
	registered, ok := kube.Find(listed, n.Name)
	if !ok {
		return checks.Finding{Problem: "its node is not registered"}
	}

	offered := registered.Offers(GPUResource(e))

	machine, err := c.Talos.GPUMachine(ctx, n.Address)
	if err != nil {
		return Unreachable(n, GPUCheck, err)[0]
	}

	if offered >= e.Count {
		if problem := missingModule(machine, n.Address); problem != "" {
			return checks.Finding{Problem: problem}
		}

		return checks.Finding{}
	}

	cluster, err := c.Kubernetes.GPUCluster(ctx, address, e.Node)
	if err != nil {
		return checks.Finding{
			Problem: "the Kubernetes API does not return the state of its device plugin", Detail: err.Error(),
		}
	}

	return checks.Finding{Problem: missingGPULink(e, offered, n.Address, machine, cluster)}
}

// missingGPULink names the first missing link between a card in a host and a resource of a node, and what to do about
// it.
func missingGPULink(e request.GPUs, offered int, address netip.Addr, m talosapi.GPUMachine, c kube.GPUCluster) string {
	if missing := cmp.Or(
		missingDevice(m, address), missingExtension(m, address), missingModule(m, address), missingToolkit(m),
		missingClass(c), missingPlugin(c, e.Node),
	); missing != "" {
		return missing
	}

	return fmt.Sprintf("offers %d instead of %d of %s, although its device plugin %s runs: the machine has %d NVIDIA "+
		"devices, and the plugin's configuration says how often each is offered; `kubectl logs` of the pod shows what it has "+
		"registered", offered, e.Count, GPUResource(e), c.Pods[0].Name, len(m.Devices))
}

func missingDevice(m talosapi.GPUMachine, address netip.Addr) string {
	if len(m.Devices) > 0 {
		return ""
	}

	return "the machine has no NVIDIA PCI device: see that its VM has the card's PCI mapping (hostpci0) and was stopped and started since, that the mapping leads to the card " +
		"on the VM's host, and that `lspci -nnk` there names vfio-pci as its driver; `talosctl -n " + address.String() +
		" get pcidevices` shows what the machine has"
}

// Prefixes of NVIDIA's extensions; the track follows.
const (
	openModules      = "nvidia-open-gpu-kernel-modules-"
	nonfreeModules   = "nonfree-kmod-nvidia-"
	containerToolkit = "nvidia-container-toolkit-"
)

// findExtension returns the machine's extension with one of the prefixes, and the version of its driver, or empty
// strings.
func findExtension(m talosapi.GPUMachine, prefixes ...string) (name, driver string) {
	for have, version := range m.Extensions {
		for _, prefix := range prefixes {
			if strings.HasPrefix(have, prefix) {
				driver, _, _ := strings.Cut(version, "-v")

				return have, driver
			}
		}
	}

	return "", ""
}

func missingExtension(m talosapi.GPUMachine, address netip.Addr) string {
	name, driver := findExtension(m, openModules, nonfreeModules)

	toolkit, userland := findExtension(m, containerToolkit)
	switch {
	case name == "":
		return "the machine's image has no NVIDIA kernel modules: make its template from a schematic with siderolabs/" +
			openModules + "<track> or siderolabs/" + nonfreeModules +
			"<track>, and upgrade the machine to that image; `talosctl -n " + address.String() + " get extensions` shows what it has"
	case !slices.Contains(m.Modules, talosapi.DriverModule) && len(m.DriverErrors) > 0:
		return fmt.Sprintf("the driver of the extension %s refuses the GPU (%s): take the flavour and track that drive its generation, see docs/compatibility.md",
			name, strings.Join(m.DriverErrors, " "))
	case toolkit != "" && userland != driver:
		return fmt.Sprintf(
			"%s is of driver %s and %s of driver %s: take both from the same track", name, driver, toolkit, userland,
		)
	default:
		return ""
	}
}

// missingModule checks the modules that pods need: nvidia drives the card, nvidia_uvm is CUDA's memory.
func missingModule(m talosapi.GPUMachine, address netip.Addr) string {
	for _, module := range []string{talosapi.DriverModule, "nvidia_uvm"} {
		if !slices.Contains(m.Modules, module) {
			return fmt.Sprintf("the kernel module %s is not loaded: list nvidia, nvidia_uvm, nvidia_drm and nvidia_modeset in machine.kernel.modules; `talosctl -n %s dmesg` says why "+
				"one of them does not load", module, address)
		}
	}

	return ""
}

func missingToolkit(m talosapi.GPUMachine) string {
	if name, _ := findExtension(m, containerToolkit); name != "" {
		return ""
	}

	return "the machine's image has no NVIDIA container toolkit, so containerd has no runtime \"nvidia\": add siderolabs/" + containerToolkit +
		"<track>, of the kernel modules' track, to its schematic"
}

func missingClass(c kube.GPUCluster) string {
	switch {
	case !c.HasClass:
		return "the cluster has no RuntimeClass \"nvidia\": create it with handler nvidia; Talos makes it of the inline manifest nvidia-gpu, see `talosctl dmesg` of a control plane"
	case c.Handler != kube.GPURuntime:
		return fmt.Sprintf(
			"the RuntimeClass \"nvidia\" has the handler %q: delete it and create it with handler nvidia", c.Handler,
		)
	default:
		return ""
	}
}

func missingPlugin(c kube.GPUCluster, node string) string {
	warnings := ""
	if len(c.Warnings) > 0 {
		warnings = ": " + strings.Join(c.Warnings, "; ")
	}

	switch {
	case len(c.Plugins) == 0:
		return "the cluster has no NVIDIA device plugin: create its DaemonSet (image nvcr.io/nvidia/k8s-device-plugin), or install the GPU Operator"
	case len(c.Pods) == 0 && warnings != "":
		return fmt.Sprintf("the device plugin %s has no pod on the node%s", strings.Join(c.Plugins, ", "), warnings)
	case len(c.Pods) == 0:
		return fmt.Sprintf("the device plugin %s has no pod on the node: compare its nodeSelector, affinity and tolerations with the node's labels and taints (`kubectl describe node %s`); "+
			"without a CNI it has to tolerate node.kubernetes.io/not-ready", strings.Join(c.Plugins, ", "), node)
	}

	for _, p := range c.Pods {
		if p.Running {
			return ""
		}
	}

	return fmt.Sprintf(
		"the device plugin's pod %s does not run: %s%s", c.Pods[0].Name, cmp.Or(c.Pods[0].Reason, "Pending"), warnings,
	)
}
