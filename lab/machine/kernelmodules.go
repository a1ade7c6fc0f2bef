package machine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
)

// Errors of loading a kernel module, in the kernel's and Talos' words.
var (
	errModuleNotFound = errors.New("module not found")
	errNoSuchDevice   = errors.New("no such device")
)

// hardwareModules are what Talos' kernel loads by itself on Proxmox' virtual hardware.
var hardwareModules = []string{"ahci", "i2c_i801", "i2c_smbus", "iTCO_vendor_support", "iTCO_wdt", "libahci", "lpc_ich", "watchdog"}

// nvidiaModuleNeeds are the modules of NVIDIA's driver, each with the one that it needs.
var nvidiaModuleNeeds = map[string]string{"nvidia": "", "nvidia_uvm": "nvidia", "nvidia_modeset": "nvidia", "nvidia_drm": "nvidia_modeset"}

func (m *machine) moduleLoaded(name string) bool { return slices.Contains(m.modules, name) }

// loadModules loads the modules of the configuration, as Talos does at boot and when the configuration changes; nothing is ever unloaded. Modules that are
// none of NVIDIA's are part of Talos' kernel or of an extension that the lab knows by name only. The caller holds the lock.
func (m *machine) loadModules() {
	var failures []string

	for _, module := range m.config.Machine().Kernel().Modules() {
		if err := m.loadModule(strings.ReplaceAll(module.Name(), "-", "_")); err != nil {
			failures = append(failures, fmt.Sprintf("error loading module %q: %s", module.Name(), err))
		}
	}

	if len(failures) > 0 {
		m.logf(`[talos] controller failed {"component": "controller-runtime", "controller": "runtime.KernelModuleSpecController", "error": %q}`, strings.Join(failures, "\n"))
	}
}

func (m *machine) loadModule(name string) error {
	if m.moduleLoaded(name) {
		return nil
	}

	needs, nvidia := nvidiaModuleNeeds[name]
	if !nvidia {
		m.modules = append(m.modules, name)

		return nil
	}

	driver, ok := m.nvidiaDriver()
	if !ok {
		return errModuleNotFound
	}

	if needs != "" {
		if err := m.loadModule(needs); err != nil {
			return err
		}
	}

	switch name {
	case "nvidia":
		if err := m.probeNVIDIA(driver); err != nil {
			return fmt.Errorf("load nvidia failed: %w", err)
		}
	case "nvidia_modeset":
		m.logf("nvidia-modeset: Loading NVIDIA UNIX Kernel Mode Setting Driver for UNIX platforms  %s", driver.version)
	case "nvidia_uvm":
		m.logf("nvidia-uvm: Loaded the UVM driver, major device number 511.")
	case "nvidia_drm":
		m.logf("[drm] [nvidia-drm] [GPU ID 0x00000100] Loading driver")
	}

	m.modules = append(m.modules, name)

	return nil
}

// users are the loaded modules that need a module.
func (m *machine) users(name string) []string {
	var users []string

	for _, loaded := range m.modules {
		if needs, ok := nvidiaModuleNeeds[loaded]; ok && needs == name {
			users = append(users, loaded)
		}
	}

	return users
}

// procModules is /proc/modules; the newest module comes first there.
func (m *machine) procModules() string {
	var text strings.Builder

	for _, name := range slices.Backward(m.modules) {
		users := m.users(name)

		by := "-"
		if len(users) > 0 {
			by = strings.Join(users, ",") + ","
		}

		fmt.Fprintf(&text, "%s %d %d %s Live 0x0000000000000000\n", name, moduleBytes, len(users), by)
	}

	return text.String()
}

// moduleBytes stands for the size of a module.
const moduleBytes = 65536

func (m *machine) describeModules() []resource.Resource {
	var list []resource.Resource

	for _, name := range m.modules {
		users := m.users(name)

		list = append(list, filled(runtime.NewLoadedKernelModule(runtime.NamespaceName, name), func(r *runtime.LoadedKernelModule) {
			s := r.TypedSpec()
			s.Size, s.ReferenceCount, s.Dependencies, s.State, s.Address = moduleBytes, len(users), users, "Live", "0x0000000000000000"
		}))
	}

	if m.config == nil {
		return list
	}

	for _, module := range m.config.Machine().Kernel().Modules() {
		list = append(list, filled(runtime.NewKernelModuleSpec(runtime.NamespaceName, module.Name()), func(r *runtime.KernelModuleSpec) {
			r.TypedSpec().Name, r.TypedSpec().Parameters = module.Name(), module.Parameters()
		}))
	}

	for name, value := range m.sysctls() {
		list = append(list, filled(runtime.NewKernelParamSpec(runtime.NamespaceName, "proc.sys."+name), func(r *runtime.KernelParamSpec) { r.TypedSpec().Value = value }))
		list = append(list, filled(runtime.NewKernelParamStatus(runtime.NamespaceName, "proc.sys."+name), func(r *runtime.KernelParamStatus) { r.TypedSpec().Current = value }))
	}

	return list
}
