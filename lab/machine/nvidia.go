package machine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"proxmox-talos/lab/datacentre"
)

// generation is an architecture of NVIDIA's GPUs and the range of its PCI device ids.
type generation struct {
	name      string
	from, to  uint64
	gsp       bool // has the system processor that the open kernel modules need
	openOnly  bool // the proprietary kernel modules refuse it
	since     int  // the first driver branch that knows it
	droppedIn int  // the first driver branch without it; 0 for none
}

// generations are NVIDIA's since Maxwell, in the order in which their ranges are looked through: Hopper's lies within Ampere's.
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

// nvidiaGPUs are the machine's NVIDIA display and 3D controllers; their audio functions are none.
func (m *machine) nvidiaGPUs() []datacentre.GuestPCI {
	var gpus []datacentre.GuestPCI

	for _, p := range m.hw.PCI {
		if hexID(p.VendorID) == "0x10de" && strings.HasPrefix(hexID(p.Class), "0x03") {
			gpus = append(gpus, p)
		}
	}

	return gpus
}

// nvidiaExtension is one of NVIDIA's extensions in the machine's image.
type nvidiaExtension struct {
	name    string
	version string // of the driver, such as "570.195.03"
}

func (e nvidiaExtension) open() bool { return strings.HasPrefix(e.name, nvidiaOpenModules) }

// branch is the driver's major version.
func (e nvidiaExtension) branch() int {
	major, _, _ := strings.Cut(e.version, ".")
	n, _ := strconv.Atoi(major)

	return n
}

// Names of NVIDIA's extensions, before the track.
const (
	nvidiaOpenModules = "nvidia-open-gpu-kernel-modules-"
	nvidiaModules     = "nonfree-kmod-nvidia-"
	nvidiaToolkit     = "nvidia-container-toolkit-"
)

// nvidiaExtensionOf returns the machine's extension with one of the prefixes. Of two that bring the same files the later hides the other, as layers do.
func (m *machine) nvidiaExtensionOf(prefixes ...string) (nvidiaExtension, bool) {
	for _, full := range slices.Backward(m.schematic.Extensions) {
		name := baseName(full)

		for _, prefix := range prefixes {
			if strings.HasPrefix(name, prefix) {
				driver, _, _ := strings.Cut(m.extensionVersion(full), "-v")

				return nvidiaExtension{name: name, version: driver}, true
			}
		}
	}

	return nvidiaExtension{}, false
}

func (m *machine) nvidiaDriver() (nvidiaExtension, bool) {
	return m.nvidiaExtensionOf(nvidiaOpenModules, nvidiaModules)
}

func (m *machine) nvidiaToolkit() (nvidiaExtension, bool) { return m.nvidiaExtensionOf(nvidiaToolkit) }

// refuses returns the driver's kernel messages about a GPU that it does not drive; none when it does.
func (e nvidiaExtension) refuses(gpu datacentre.GuestPCI) []string {
	g, known := generationOf(gpu.DeviceID)
	head := fmt.Sprintf("NVRM: The NVIDIA GPU %s (PCI ID: 10de:%s)", gpu.Address, strings.TrimPrefix(hexID(gpu.DeviceID), "0x"))

	switch {
	case !known || e.branch() < g.since:
		return []string{head, "NVRM: installed in this system is not supported by the", "NVRM: NVIDIA " + e.version + " driver release."}
	case g.droppedIn > 0 && e.branch() >= g.droppedIn:
		return []string{head, "NVRM: installed in this system is supported through the", "NVRM: NVIDIA 580.xx Legacy drivers. The " + e.version + " NVIDIA driver will ignore this GPU."}
	case e.open() && !g.gsp:
		return []string{head, "NVRM: installed in this system is not supported by open", "NVRM: nvidia.ko because it does not include the required GPU", "NVRM: System Processor (GSP)."}
	case !e.open() && g.openOnly:
		return []string{head, "NVRM: installed in this system requires use of the NVIDIA open kernel modules."}
	default:
		return nil
	}
}

// drivenGPUs are the GPUs that the loaded NVIDIA driver serves; the caller holds the lock.
func (m *machine) drivenGPUs() []datacentre.GuestPCI {
	driver, ok := m.nvidiaDriver()
	if !ok || !m.moduleLoaded("nvidia") {
		return nil
	}

	return slices.DeleteFunc(m.nvidiaGPUs(), func(gpu datacentre.GuestPCI) bool { return driver.refuses(gpu) != nil })
}

// probeNVIDIA is what happens when the kernel module nvidia is loaded; the error is that of the load. The caller holds the lock.
func (m *machine) probeNVIDIA(driver nvidiaExtension) error {
	m.logf("nvidia: loading out-of-tree module taints kernel.")
	m.logf("nvidia-nvlink: Nvlink Core is being initialized, major device number 240")

	gpus := m.nvidiaGPUs()
	if len(gpus) == 0 {
		m.logf("NVRM: No NVIDIA GPU found.")

		return errNoSuchDevice
	}

	driven := 0

	for _, gpu := range gpus {
		messages := driver.refuses(gpu)
		if messages == nil {
			driven++

			m.logf("nvidia %s: enabling device (0000 -> 0003)", gpu.Address)

			continue
		}

		for _, text := range messages {
			m.logf("%s", text)
		}

		m.logf("nvidia %s: probe with driver nvidia failed with error -1", gpu.Address)
	}

	if driven == 0 {
		m.logf("NVRM: The NVIDIA probe routine failed for %d device(s).", len(gpus))
		m.logf("NVRM: None of the NVIDIA devices were initialized.")

		return errNoSuchDevice
	}

	kind := "NVIDIA UNIX x86_64 Kernel Module"
	if driver.open() {
		kind = "NVIDIA UNIX Open Kernel Module for x86_64"
	}

	m.logf("NVRM: loading %s  %s  Release Build", kind, driver.version)

	return nil
}

// nvidiaFiles are the files of a loaded driver; the caller holds the lock.
func (m *machine) nvidiaFiles() map[string]string {
	files := map[string]string{}

	if _, ok := m.nvidiaToolkit(); ok {
		files["/etc/cri/conf.d/10-nvidia-container-runtime.part"] = "[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.nvidia]\n  runtime_type = \"io.containerd.runc.v2\"\n"
	}

	driver, ok := m.nvidiaDriver()
	if !ok || !m.moduleLoaded("nvidia") {
		return files
	}

	files["/proc/driver/nvidia/version"] = "NVRM version: NVIDIA UNIX Kernel Module  " + driver.version + "\n"

	for i, gpu := range m.drivenGPUs() {
		files["/proc/driver/nvidia/gpus/"+gpu.Address+"/information"] = fmt.Sprintf("Model: \t\t %s\nBus Location: \t %s\nDevice Minor: \t %d\n", gpu.Device, gpu.Address, i)
	}

	return files
}

// startPersistenced is the toolkit's service, which waits for the driver, and fails against the driver of another version; the caller holds the lock.
func (m *machine) startPersistenced() {
	const name = "ext-nvidia-persistenced"

	toolkit, _ := m.nvidiaToolkit()
	driver, _ := m.nvidiaDriver()

	switch {
	case !m.moduleLoaded("nvidia"):
		m.services.set(m, name, stateWaiting, `Waiting for file "/sys/bus/pci/drivers/nvidia" to exist`)
	case driver.version != toolkit.version:
		m.logf("NVRM: API mismatch: the client has the version %s, but", toolkit.version)
		m.logf("NVRM: this kernel module has the version %s.  Please", driver.version)
		m.logf("NVRM: make sure that this kernel module and all NVIDIA driver")
		m.logf("NVRM: components have the same version.")
		m.services.set(m, name, stateWaiting, "Error running Containerd("+name+"), going to restart forever: task \""+name+"\" failed: exit code 1")
	default:
		m.services.set(m, name, stateRunning, "Started task "+name)
	}
}
