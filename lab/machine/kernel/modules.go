package kernel

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"talos-proxmox/lab/machine/resources"
)

// Errors of loading a kernel module, as the kernel and Talos word them.
var (
	errModuleNotFound = errors.New("module not found")
	errNoSuchDevice   = errors.New("no such device")
)

// hardwareModules are loaded by Talos' kernel on Proxmox' virtual hardware.
var hardwareModules = []string{
	"ahci", "i2c_i801", "i2c_smbus", "iTCO_vendor_support", "iTCO_wdt", "libahci", "lpc_ich", "watchdog",
}

// nvidiaModuleDeps maps the modules of NVIDIA's driver to the module that they depend on.
var nvidiaModuleDeps = map[string]string{
	"nvidia": "", "nvidia_uvm": "nvidia", "nvidia_modeset": "nvidia", "nvidia_drm": "nvidia_modeset",
}

// Loaded reports whether a module is loaded.
func (k *Kernel) Loaded(name string) bool { return slices.Contains(k.modules, name) }

// Load loads the modules of a configuration, as Talos does at boot and when the configuration changes; modules are
// never unloaded. Modules other than NVIDIA's belong to Talos' kernel or to extensions of which the lab knows only the
// name.
func (k *Kernel) Load(cfg config.Config) {
	var failures []string

	for _, module := range cfg.KernelModuleConfigs() {
		if err := k.load(strings.ReplaceAll(module.Name(), "-", "_")); err != nil {
			failures = append(failures, fmt.Sprintf("error loading module %q: %s", module.Name(), err))
		}
	}

	if len(failures) > 0 {
		k.logf(`[talos] controller failed {"component": "controller-runtime", "controller": "runtime.KernelModuleSpecController", "error": %q}`, strings.Join(failures, "\n"))
	}
}

func (k *Kernel) load(name string) error {
	if k.Loaded(name) {
		return nil
	}

	needs, nvidia := nvidiaModuleDeps[name]
	if !nvidia {
		k.modules = append(k.modules, name)

		return nil
	}

	driver, ok := k.Driver()
	if !ok {
		return errModuleNotFound
	}

	if needs != "" {
		if err := k.load(needs); err != nil {
			return err
		}
	}

	switch name {
	case "nvidia":
		if err := k.probeNVIDIA(driver); err != nil {
			return fmt.Errorf("load nvidia failed: %w", err)
		}
	case "nvidia_modeset":
		k.logf("nvidia-modeset: Loading NVIDIA UNIX Kernel Mode Setting Driver for UNIX platforms  %s", driver.DriverVersion())
	case "nvidia_uvm":
		k.logf("nvidia-uvm: Loaded the UVM driver, major device number 511.")
	case "nvidia_drm":
		k.logf("[drm] [nvidia-drm] [GPU ID 0x00000100] Loading driver")
	}

	k.modules = append(k.modules, name)

	return nil
}

// users returns the loaded modules that depend on a module.
func (k *Kernel) users(name string) []string {
	var users []string

	for _, loaded := range k.modules {
		if needs, ok := nvidiaModuleDeps[loaded]; ok && needs == name {
			users = append(users, loaded)
		}
	}

	return users
}

// Resources returns the passed-through devices and the modules.
func (k *Kernel) Resources() []resource.Resource {
	list := make([]resource.Resource, 0, len(k.devices)+len(k.modules))

	for _, p := range k.devices {
		list = append(list, k.pciDevice(p))
	}

	for _, name := range k.modules {
		list = append(list, resources.WithSpec(runtime.NewLoadedKernelModule(
			runtime.NamespaceName, name,
		), func(r *runtime.LoadedKernelModule) {
			r.TypedSpec().State, r.TypedSpec().Dependencies = "Live", k.users(name)
		}))
	}

	return list
}
