package talos

import (
	"maps"
	"slices"
	"strings"
)

// Extensions returns the official system extensions of a full Talos version by their full names
// (siderolabs/qemu-guest-agent), sorted; none for an unsupported version. A private Factory may offer others.
func Extensions(talos string) []string {
	if _, err := ReleaseOf(talos); err != nil {
		return nil
	}

	minor, _ := parseVersion("Talos", talos)

	var names []string

	for _, release := range Releases() {
		if !minor.before(minorVersion(release.Talos)) {
			for name := range strings.FieldsSeq(release.Extensions) {
				names = append(names, officialExtensions+name)
			}
		}
	}

	slices.Sort(names)

	return names
}

// AcceptedExtensions returns the official extensions of a supported Talos version, and former names of some.
func AcceptedExtensions(talos string) []string {
	official := Extensions(talos)
	if len(official) == 0 {
		return nil
	}

	return slices.AppendSeq(official, maps.Keys(RenamedExtensions()))
}

// RenamedExtensions returns the current names of official extensions by former names that the Image Factory accepts.
func RenamedExtensions() map[string]string {
	names := map[string]string{}
	for former, now := range map[string]string{
		"amdgpu-firmware": "amdgpu",
		"gasket":          "gasket-driver",
		"i915-ucode":      "i915",
		"talos-vmtoolsd":  "vmtoolsd-guest-agent",
		"usb-modem":       "usb-modem-drivers", "v4l-uvc": "v4l-uvc-drivers", "xe-guest-utilities": "xen-guest-agent",
		"nonfree-kmod-nvidia": "nonfree-kmod-nvidia-lts", "nvidia-container-toolkit": "nvidia-container-toolkit-lts",
		"nvidia-open-gpu-kernel-modules": "nvidia-open-gpu-kernel-modules-lts",
	} {
		names[officialExtensions+former] = officialExtensions + now
	}

	return names
}
