package kernel

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/lab/datacentre"
)

// generation is an architecture of NVIDIA's GPUs with a range of PCI device ids.
type generation struct {
	name      string
	from, to  uint64
	gsp       bool // has the GPU System Processor, which the open kernel modules require
	openOnly  bool // unsupported by the proprietary kernel modules
	since     int  // first driver branch that supports it
	droppedIn int  // first driver branch that no longer supports it; 0 = none
}

// generations are NVIDIA's since Maxwell in search order: Hopper's range lies within Ampere's.
var generations = []generation{
	{name: "maxwell", from: 0x1340, to: 0x15ef, since: 340, droppedIn: 590},
	{name: "pascal", from: 0x15f0, to: 0x15ff, since: 370, droppedIn: 590},
	{name: "maxwell", from: 0x1600, to: 0x17ff, since: 340, droppedIn: 590},
	{name: "pascal", from: 0x1b00, to: 0x1d7f, since: 370, droppedIn: 590},
	{name: "volta", from: 0x1d80, to: 0x1dff, since: 384, droppedIn: 590},
	{name: "turing", from: 0x1e00, to: 0x1fff, gsp: true, since: 410},
	{name: "ampere", from: 0x2080, to: 0x20ff, gsp: true, since: 450},
	{name: "turing", from: 0x2180, to: 0x21ff, gsp: true, since: 410},
	{name: "hopper", from: 0x2300, to: 0x23ff, gsp: true, since: 525},
	{name: "ampere", from: 0x2200, to: 0x25ff, gsp: true, since: 450},
	{name: "ada", from: 0x2600, to: 0x28ff, gsp: true, since: 525},
	{name: "blackwell", from: 0x2900, to: 0x2fff, gsp: true, openOnly: true, since: 570},
	{name: "blackwell", from: 0x3100, to: 0x31ff, gsp: true, openOnly: true, since: 570},
}

func generationOf(deviceID string) (generation, bool) {
	id, err := strconv.ParseUint(strings.TrimPrefix(strings.ToLower(deviceID), "0x"), 16, 32)
	if err != nil {
		return generation{}, false
	}

	i := slices.IndexFunc(generations, func(g generation) bool { return g.from <= id && id <= g.to })
	if i < 0 {
		return generation{}, false
	}

	return generations[i], true
}

// gpus returns the machine's NVIDIA display and 3D controllers, without their audio functions.
func (k *Kernel) gpus() []datacentre.PCIDevice {
	var gpus []datacentre.PCIDevice

	for _, p := range k.devices {
		if hexID(p.VendorID) == "0x10de" && strings.HasPrefix(hexID(p.Class), "0x03") {
			gpus = append(gpus, p)
		}
	}

	return gpus
}

// isOpen reports whether the extension contains NVIDIA's open kernel modules.
func (e Extension) isOpen() bool { return strings.HasPrefix(e.Name, nvidiaOpenModules) }

// DriverVersion returns the driver version of one of NVIDIA's extensions, such as "570.195.03".
func (e Extension) DriverVersion() string {
	driver, _, _ := strings.Cut(e.Version, "-v")

	return driver
}

// branch returns the driver's major version.
func (e Extension) branch() int {
	major, _, _ := strings.Cut(e.Version, ".")
	n, _ := strconv.Atoi(major)

	return n
}

// Names of NVIDIA's extensions without the track.
const (
	nvidiaOpenModules = "nvidia-open-gpu-kernel-modules-"
	nvidiaModules     = "nonfree-kmod-nvidia-"
	nvidiaToolkit     = "nvidia-container-toolkit-"
)

// extension returns the extension with one of the prefixes. Of two with the same files the later one hides the other,
// like layers.
func (k *Kernel) extension(prefixes ...string) (Extension, bool) {
	for _, e := range slices.Backward(k.extensions) {
		if slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(e.Name, prefix) }) {
			return e, true
		}
	}

	return Extension{}, false
}

// Driver returns the extension with NVIDIA's kernel modules.
func (k *Kernel) Driver() (Extension, bool) { return k.extension(nvidiaOpenModules, nvidiaModules) }

// Toolkit returns the extension with NVIDIA's container toolkit.
func (k *Kernel) Toolkit() (Extension, bool) { return k.extension(nvidiaToolkit) }

// rejects returns the driver's kernel messages about a GPU that it does not support; none if it does.
func (e Extension) rejects(gpu datacentre.PCIDevice) []string {
	g, known := generationOf(gpu.DeviceID)
	head := fmt.Sprintf(
		"NVRM: The NVIDIA GPU %s (PCI ID: 10de:%s)", gpu.Address, strings.TrimPrefix(hexID(gpu.DeviceID), "0x"),
	)

	switch {
	case !known || e.branch() < g.since:
		return []string{
			head, "NVRM: installed in this system is not supported by the",
			"NVRM: NVIDIA " + e.DriverVersion() + " driver release.",
		}
	case g.droppedIn > 0 && e.branch() >= g.droppedIn:
		return []string{
			head, "NVRM: installed in this system is supported through the",
			"NVRM: NVIDIA 580.xx Legacy drivers. The " + e.DriverVersion() + " NVIDIA driver will ignore this GPU.",
		}
	case e.isOpen() && !g.gsp:
		return []string{
			head, "NVRM: installed in this system is not supported by open",
			"NVRM: nvidia.ko because it does not include the required GPU", "NVRM: System Processor (GSP).",
		}
	case !e.isOpen() && g.openOnly:
		return []string{head, "NVRM: installed in this system requires use of the NVIDIA open kernel modules."}
	default:
		return nil
	}
}

// DrivenGPUs returns the GPUs that the loaded NVIDIA driver supports.
func (k *Kernel) DrivenGPUs() []datacentre.PCIDevice {
	driver, ok := k.Driver()
	if !ok || !k.Loaded("nvidia") {
		return nil
	}

	return slices.DeleteFunc(k.gpus(), func(gpu datacentre.PCIDevice) bool { return driver.rejects(gpu) != nil })
}

// probeNVIDIA loads the kernel module nvidia, which probes the GPUs.
func (k *Kernel) probeNVIDIA(driver Extension) error {
	k.logf("nvidia: loading out-of-tree module taints kernel.")
	k.logf("nvidia-nvlink: Nvlink Core is being initialized, major device number 240")

	gpus := k.gpus()
	if len(gpus) == 0 {
		k.logf("NVRM: No NVIDIA GPU found.")

		return errNoSuchDevice
	}

	driven := 0

	for _, gpu := range gpus {
		messages := driver.rejects(gpu)
		if messages == nil {
			driven++

			k.logf("nvidia %s: enabling device (0000 -> 0003)", gpu.Address)

			continue
		}

		for _, text := range messages {
			k.logf("%s", text)
		}

		k.logf("nvidia %s: probe with driver nvidia failed with error -1", gpu.Address)
	}

	if driven == 0 {
		k.logf("NVRM: The NVIDIA probe routine failed for %d device(s).", len(gpus))
		k.logf("NVRM: None of the NVIDIA devices were initialized.")

		return errNoSuchDevice
	}

	kind := "NVIDIA UNIX x86_64 Kernel Module"
	if driver.isOpen() {
		kind = "NVIDIA UNIX Open Kernel Module for x86_64"
	}

	k.logf("NVRM: loading %s  %s  Release Build", kind, driver.DriverVersion())

	return nil
}

// Persistenced starts the toolkit's service, which waits for the driver, and fails if the driver has another version.
// It returns whether the service runs, and Talos' message.
func (k *Kernel) Persistenced(name string) (running bool, message string) {
	toolkit, _ := k.Toolkit()
	driver, _ := k.Driver()

	switch {
	case !k.Loaded("nvidia"):
		return false, `Waiting for file "/sys/bus/pci/drivers/nvidia" to exist`
	case driver.DriverVersion() != toolkit.DriverVersion():
		k.logf("NVRM: API mismatch: the client has the version %s, but", toolkit.DriverVersion())
		k.logf("NVRM: this kernel module has the version %s.  Please", driver.DriverVersion())
		k.logf("NVRM: make sure that this kernel module and all NVIDIA driver")
		k.logf("NVRM: components have the same version.")

		return false, "Error running Containerd(" + name + "), going to restart forever: task \"" + name +
			"\" failed: exit code 1"
	default:
		return true, "Started task " + name
	}
}
