package hostos

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/lab/datacentre"
)

const vfio = "vfio_pci"

// moduleRules are what modprobe.d and the command line say about modules. Names are with underscores, as the kernel has
// them.
type moduleRules struct {
	options  map[string]map[string]string
	before   map[string][]string // softdep … pre:
	refused  map[string]bool     // blacklisted: not loaded for a device, but by name
	unusable map[string]bool     // install … /bin/false: not loaded at all
}

func moduleName(name string) string { return strings.ReplaceAll(name, "-", "_") }

// parseModprobe reads configuration as modprobe does; lines that it would warn about are passed over.
func parseModprobe(text string) moduleRules {
	r := moduleRules{
		options:  map[string]map[string]string{},
		before:   map[string][]string{},
		refused:  map[string]bool{},
		unusable: map[string]bool{},
	}

	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		words := strings.Fields(line)
		if len(words) < 2 || strings.HasPrefix(words[0], "#") {
			continue
		}

		name, rest := moduleName(words[1]), words[2:]

		switch words[0] {
		case "blacklist":
			r.refused[name] = true
		case "options":
			r.addOptions(name, rest)
		case "softdep":
			pre := false

			for _, word := range rest {
				if strings.HasSuffix(word, ":") {
					pre = word == "pre:"
				} else if pre {
					r.before[name] = append(r.before[name], moduleName(word))
				}
			}
		case "install":
			r.unusable[name] = len(rest) > 0 && (strings.HasSuffix(rest[0], "/false") || strings.HasSuffix(rest[0], "/true"))
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

// addWords adds what the kernel's command line says about modules: it has the last word.
func (r moduleRules) addWords(words map[string]string) {
	for _, name := range []string{"modprobe.blacklist", "module_blacklist"} {
		for module := range strings.SplitSeq(words[name], ",") {
			r.refused[moduleName(module)] = true
		}
	}

	for _, word := range slices.Sorted(maps.Keys(words)) {
		if module, option, found := strings.Cut(word, "."); found && module != "modprobe" {
			r.addOptions(moduleName(module), []string{option + "=" + words[word]})
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

// claims says that vfio-pci takes the device: its ids name it.
func (r moduleRules) claims(p datacentre.PCIDevice) bool {
	for id := range strings.SplitSeq(r.options[vfio]["ids"], ",") {
		if id = strings.ToLower(id); id == p.IDs() || strings.HasPrefix(id, p.IDs()+":") &&
			strings.Contains(id, p.SubsystemIDs()) {
			return true
		}
	}

	return false
}

// bind says which modules serve the devices after a boot, and which modules are loaded. A device belongs to the first
// of its modules that is loaded: the initramfs' own list, then for each device what its softdeps put before its driver,
// then the driver, and last modules-load.d.
func bind(
	h datacentre.HostOptions, iommu bool, r moduleRules, early, late []string,
) (drivers map[string]string, loaded []string) {
	drivers = map[string]string{}

	load := func(list []string) {
		for _, name := range list {
			if name = moduleName(name); r.unusable[name] || slices.Contains(loaded, name) {
				continue
			}

			if loaded = append(loaded, name); name != vfio || !iommu {
				continue
			}

			// Without an IOMMU vfio-pci refuses every device.
			for _, p := range h.PCI {
				if drivers[p.Address] == "" && r.claims(p) && !p.Bridge() {
					drivers[p.Address] = "vfio-pci"
				}
			}
		}
	}

	load(early)

	for _, p := range h.PCI {
		name := moduleName(p.Driver)
		if name == "" || r.refused[name] || r.unusable[name] {
			continue
		}

		load(r.before[name])

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
