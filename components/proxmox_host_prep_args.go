package components

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/scripts"
	"talos-proxmox/internal/hostfacts"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
)

// Values of [ProxmoxHostPrepArgs.Reboot].
const (
	RebootNever    = "never"    // pending reboots are reported
	RebootWhenIdle = "whenIdle" // while no VM runs on the host
)

// ProxmoxHostPrepArgs describe how one host is prepared.
type ProxmoxHostPrepArgs struct {
	// The name of the Proxmox host: pve1.
	Host string `pulumi:"host"`
	// The SSH connection to the host.
	Shell HostShell `pulumi:"shell"`
	// Prepare the host's IOMMU for PCI passthrough: kernel command line, modules, and the binding of GPUs to
	// vfio-pci. Default: true.
	IOMMU *bool `pulumi:"iommu,optional"`
	// The maximum size of ZFS' cache (ARC) in GiB; 0 = not changed. Default: a tenth of the memory, at most 16 GiB.
	ZFSArcMaxGiB *float64 `pulumi:"zfsArcMaxGiB,optional"`
	// The Proxmox package repositories: keep, no-subscription or enterprise. Default: keep.
	Repositories string `pulumi:"repositories,optional"`
	// Whether the host is rebooted if a change needs it: never or whenIdle. Default: never.
	Reboot string `pulumi:"reboot,optional"`
	// The host's GPUs for machines. Default: none.
	GPUs []HostGPU `pulumi:"gpus,optional"`
	// Other devices of the host for machines. Default: none.
	Devices []HostDevice `pulumi:"devices,optional"`
	// For each machine with GPUs or devices of the host, their PCI addresses; the check makes sure that it can start.
	// Default: none.
	Machines [][]string `pulumi:"machines,optional"`
	// The names of all clusters of the stack, sorted: a host reboots only if their machines on other hosts are running.
	// Default: none.
	Clusters []string `pulumi:"clusters,optional"`
	// The output settled of the host that reboots before this one: hosts of a Proxmox cluster reboot one at a time.
	// Default: none.
	RebootAfter pulumi.StringInput `pulumi:"rebootAfter,optional"`
	// The host's facts, as talosops facts prints them. Default: the host is queried while the program runs, also in
	// previews.
	Facts pulumi.StringInput `pulumi:"facts,optional"`
}

// HostDevice is a PCI device of a host that is no GPU of NVIDIA.
type HostDevice struct {
	// The name that machines request it by; devices of the same kind share it.
	Name string `pulumi:"name"`
	// Its PCI address: 0000:00:02.0 for one function, 0000:02:00 for all functions of the device.
	PCI string `pulumi:"pci"`
	// What it is: intel-gpu, amd-gpu or other. Default: other.
	Kind string `pulumi:"kind,optional"`
}

// HostGPU is a GPU of a host.
type HostGPU struct {
	// The name that machines request it by; GPUs of the same kind share it.
	Name string `pulumi:"name"`
	// Its PCI address: 0000:01:00 for all functions of the device, 0000:01:00.0 for one.
	PCI string `pulumi:"pci"`
}

func (a ProxmoxHostPrepArgs) request(owner string) request.Host {
	return scripts.HostRequest(owner, a.Shell.request(a.Host), a.host(), a.needs())
}

// host returns the host as the specification describes it.
func (a ProxmoxHostPrepArgs) host() spec.Host {
	h := spec.Host{Name: a.Host, Path: a.Host, Address: a.Shell.Address, Prep: &spec.Prep{
		IOMMU: *a.IOMMU, Repositories: a.Repositories, Reboot: a.Reboot, ZFSArcMaxGiB: a.ZFSArcMaxGiB,
	}}

	for _, gpu := range a.GPUs {
		h.GPUs = append(h.GPUs, spec.Device{Name: gpu.Name, Host: a.Host, PCI: gpu.PCI})
	}

	for _, device := range a.Devices {
		h.Devices = append(h.Devices, spec.Device{
			Name: device.Name, Host: a.Host, PCI: device.PCI, Kind: spec.DeviceKind(a.kinds()[device.PCI]),
		})
	}

	return h
}

// kinds returns the kinds of the host's devices that are no GPUs of NVIDIA, by PCI address.
func (a ProxmoxHostPrepArgs) kinds() map[string]string {
	kinds := map[string]string{}
	for _, device := range a.Devices {
		kinds[device.PCI] = cmp.Or(device.Kind, string(spec.OtherDevice))
	}

	return kinds
}

// needs returns what machines need of the host.
func (a ProxmoxHostPrepArgs) needs() hostfacts.Needs {
	needs := hostfacts.Needs{Clusters: a.Clusters}
	for _, machine := range a.Machines {
		needs.Nodes = append(needs.Nodes, hostfacts.NodeWithDevices(a.Host, machine, a.kinds()))
	}

	return needs
}

func (a ProxmoxHostPrepArgs) withDefaults() ProxmoxHostPrepArgs {
	a.Shell = a.Shell.withDefaults()
	setDefault(&a.Repositories, "keep")
	setDefault(&a.Reboot, RebootNever)

	if a.IOMMU == nil {
		a.IOMMU = pulumi.BoolRef(true)
	}

	return a
}

func (a ProxmoxHostPrepArgs) validate(name string) error {
	found := &problem.List{}
	required(found, "host", a.Host, "the Proxmox host, such as pve1")
	requiredAddress(found, "shell.address", a.Shell.Address, "the host's, such as 10.0.0.2")

	if !slices.Contains([]string{"keep", "no-subscription", "enterprise"}, a.Repositories) {
		found.Add("repositories", a.Repositories, "is none of keep, no-subscription and enterprise; choose one")
	}

	if a.Reboot != RebootNever && a.Reboot != RebootWhenIdle {
		found.Add("reboot", a.Reboot, "is neither never nor whenIdle; choose one")
	}

	(&spec.Prep{ZFSArcMaxGiB: a.ZFSArcMaxGiB}).CheckZFSArc("zfsArcMaxGiB", found)

	for i, gpu := range a.GPUs {
		required(found, fmt.Sprintf("gpus[%d].pci", i), gpu.PCI, "its PCI address, such as 0000:01:00")
	}

	for i, device := range a.Devices {
		required(found, fmt.Sprintf("devices[%d].pci", i), device.PCI, "its PCI address, such as 0000:00:02.0")

		if !slices.Contains([]string{"", "intel-gpu", "amd-gpu", "other"}, device.Kind) {
			found.Add(fmt.Sprintf("devices[%d].kind", i), device.Kind, "is none of intel-gpu, amd-gpu and other; choose one")
		}
	}

	return problemsOf("preparation", name, found)
}
