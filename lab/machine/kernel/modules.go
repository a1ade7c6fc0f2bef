package kernel

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/machine/resources"
)

// Errors of loading a kernel module, in the kernel's and Talos' words.
var (
	errModuleNotFound = errors.New("module not found")
	errNoSuchDevice   = errors.New("no such device")
)

// hardwareModules are what Talos' kernel loads by itself on Proxmox' virtual hardware.
var hardwareModules = []string{
	"ahci", "i2c_i801", "i2c_smbus", "iTCO_vendor_support", "iTCO_wdt", "libahci", "lpc_ich", "watchdog",
}

// nvidiaModuleNeeds are the modules of NVIDIA's driver, each with the one that it needs.
var nvidiaModuleNeeds = map[string]string{
	"nvidia": "", "nvidia_uvm": "nvidia", "nvidia_modeset": "nvidia", "nvidia_drm": "nvidia_modeset",
}

// Loaded says whether a module is loaded.
func (k *Kernel) Loaded(name string) bool { return slices.Contains(k.modules, name) }

// Load loads the modules of a configuration, as Talos does at boot and when the configuration changes; nothing is ever
// unloaded. Modules that are none of NVIDIA's are part of Talos' kernel or of an extension that the lab knows by name
// only.
func (k *Kernel) Load(cfg config.Config) {
	var failures []string

	for _, module := range cfg.KernelModuleConfigs() {
		if err := k.load(strings.ReplaceAll(module.Name(), "-", "_")); err != nil {
			failures = append(failures, fmt.Sprintf("error loading module %q: %s", module.Name(), err))
		}
	}

	if len(failures) > 0 {
		k.say(`[talos] controller failed {"component": "controller-runtime", "controller": "runtime.KernelModuleSpecController", "error": %q}`, strings.Join(failures, "\n"))
	}
}

func (k *Kernel) load(name string) error {
	if k.Loaded(name) {
		return nil
	}

	needs, nvidia := nvidiaModuleNeeds[name]
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
		k.say("nvidia-modeset: Loading NVIDIA UNIX Kernel Mode Setting Driver for UNIX platforms  %s", driver.DriverVersion())
	case "nvidia_uvm":
		k.say("nvidia-uvm: Loaded the UVM driver, major device number 511.")
	case "nvidia_drm":
		k.say("[drm] [nvidia-drm] [GPU ID 0x00000100] Loading driver")
	}

	k.modules = append(k.modules, name)

	return nil
}

// users are the loaded modules that need a module.
func (k *Kernel) users(name string) []string {
	var users []string

	for _, loaded := range k.modules {
		if needs, ok := nvidiaModuleNeeds[loaded]; ok && needs == name {
			users = append(users, loaded)
		}
	}

	return users
}

// procModules is /proc/modules; the newest module comes first there.
func (k *Kernel) procModules() string {
	var text strings.Builder

	for _, name := range slices.Backward(k.modules) {
		users := k.users(name)

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

// Resources are the devices, with others of the machine, the modules and the settings of the configuration, which is
// nil in maintenance mode.
func (k *Kernel) Resources(cfg config.Config, others []datacentre.GuestPCI) []resource.Resource {
	var list []resource.Resource

	for _, p := range slices.Concat(chipset, others, k.devices) {
		list = append(list, k.pciDevice(p))
	}

	for _, name := range k.modules {
		users := k.users(name)

		list = append(list, resources.Filled(runtime.NewLoadedKernelModule(
			runtime.NamespaceName, name,
		), func(r *runtime.LoadedKernelModule) {
			s := r.TypedSpec()
			s.Size = moduleBytes
			s.ReferenceCount = len(users)
			s.Dependencies = users
			s.State = "Live"
			s.Address = "0x0000000000000000"
		}))
	}

	if cfg == nil {
		return list
	}

	for _, module := range cfg.KernelModuleConfigs() {
		list = append(list, resources.Filled(runtime.NewKernelModuleSpec(
			runtime.NamespaceName, module.Name(),
		), func(r *runtime.KernelModuleSpec) {
			r.TypedSpec().Name, r.TypedSpec().Parameters = module.Name(), module.Parameters()
		}))
	}

	for name, value := range sysctls(cfg) {
		id := "proc.sys." + name
		list = append(list,
			resources.Filled(
				runtime.NewKernelParamSpec(runtime.NamespaceName, id),
				func(r *runtime.KernelParamSpec) { r.TypedSpec().Value = value },
			),
			resources.Filled(
				runtime.NewKernelParamStatus(runtime.NamespaceName, id),
				func(r *runtime.KernelParamStatus) { r.TypedSpec().Current = value },
			),
		)
	}

	return list
}

// Files are those of the modules, of NVIDIA's driver and of the settings of the configuration, which is nil in
// maintenance mode.
func (k *Kernel) Files(cfg config.Config) map[string]string {
	files := k.nvidiaFiles()
	files["/proc/modules"] = k.procModules()

	for name, content := range sysctls(cfg) {
		files["/proc/sys/"+strings.ReplaceAll(name, ".", "/")] = content + "\n"
	}

	return files
}

// sysctls are those of the configuration, which Talos sets.
func sysctls(cfg config.Config) map[string]string {
	if cfg == nil {
		return nil
	}

	return cfg.SysctlConfig()
}
