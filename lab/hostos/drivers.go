package hostos

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/lab/datacentre"
)

const vfio = "vfio_pci"

// moduleRules are the rules of modprobe.d and the command line for modules. Names have underscores, as in the kernel.
type moduleRules struct {
	options     map[string]map[string]string
	softdeps    map[string][]string // softdep … pre:
	blacklisted map[string]bool     // not loaded for a device, but by name
	disabled    map[string]bool     // install … /bin/false: never loaded
}

func moduleName(name string) string { return strings.ReplaceAll(name, "-", "_") }

// parseModprobe reads configuration as modprobe does; it skips lines that modprobe would warn about.
func parseModprobe(text string) moduleRules {
	r := moduleRules{
		options:     map[string]map[string]string{},
		softdeps:    map[string][]string{},
		blacklisted: map[string]bool{},
		disabled:    map[string]bool{},
	}

	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		words := strings.Fields(line)
		if len(words) < 2 || strings.HasPrefix(words[0], "#") {
			continue
		}

		name, rest := moduleName(words[1]), words[2:]

		switch words[0] {
		case "blacklist":
			r.blacklisted[name] = true
		case "options":
			r.addOptions(name, rest)
		case "softdep":
			pre := false

			for _, word := range rest {
				if strings.HasSuffix(word, ":") {
					pre = word == "pre:"
				} else if pre {
					r.softdeps[name] = append(r.softdeps[name], moduleName(word))
				}
			}
		case "install":
			r.disabled[name] = len(rest) > 0 && (strings.HasSuffix(rest[0], "/false") || strings.HasSuffix(rest[0], "/true"))
		}
	}

	return r
}

func (r moduleRules) addOptions(module string, options []string) {
	if r.options[module] == nil {
		r.options[module] = map[string]string{}
	}

	for _, option := range options {
		name, value, _ := strings.Cut(option, "=")
		r.options[module][name] = strings.Trim(value, `"`)
	}
}

// addCommandLine adds the kernel parameters about modules, which override the files.
func (r moduleRules) addCommandLine(parameters map[string]string) {
	for _, name := range []string{"modprobe.blacklist", "module_blacklist"} {
		for module := range strings.SplitSeq(parameters[name], ",") {
			r.blacklisted[moduleName(module)] = true
		}
	}

	for _, word := range slices.Sorted(maps.Keys(parameters)) {
		if module, option, found := strings.Cut(word, "."); found && module != "modprobe" {
			r.addOptions(moduleName(module), []string{option + "=" + parameters[word]})
		}
	}
}

func (r moduleRules) bytes(module, option string) int64 {
	n, err := strconv.ParseInt(r.options[module][option], 0, 64)
	if err != nil || n < 0 {
		return 0
	}

	return n
}

// vfioClaims reports whether vfio-pci takes the device: its ids name it.
func (r moduleRules) vfioClaims(p datacentre.PCIDevice) bool {
	for id := range strings.SplitSeq(r.options[vfio]["ids"], ",") {
		if id = strings.ToLower(id); id == p.IDs() || strings.HasPrefix(id, p.IDs()+":") &&
			strings.Contains(id, p.SubsystemIDs()) {
			return true
		}
	}

	return false
}

// bindDrivers returns the driver of each device after a boot, and the loaded modules. A device belongs to the first of
// its modules that is loaded: the initramfs' own list, then for each device the softdeps of its driver and the driver,
// and last modules-load.d.
func bindDrivers(
	h datacentre.HostOptions, iommu bool, r moduleRules, early, late []string,
) (drivers map[string]string, loaded []string) {
	drivers = map[string]string{}

	load := func(list []string) {
		for _, name := range list {
			if name = moduleName(name); r.disabled[name] || slices.Contains(loaded, name) {
				continue
			}

			if loaded = append(loaded, name); name != vfio || !iommu {
				continue
			}

			// Without an IOMMU vfio-pci refuses every device.
			for _, p := range h.PCI {
				if drivers[p.Address] == "" && r.vfioClaims(p) && !p.Bridge() {
					drivers[p.Address] = "vfio-pci"
				}
			}
		}
	}

	load(early)

	for _, p := range h.PCI {
		name := moduleName(p.Driver)
		if name == "" || r.blacklisted[name] || r.disabled[name] {
			continue
		}

		load(r.softdeps[name])

		if drivers[p.Address] == "" {
			drivers[p.Address] = p.Driver
		}

		if name != "pcieport" { // built in
			loaded = append(loaded, name)
		}
	}

	load(late)

	return drivers, loaded
}
