package talos

import (
	"slices"
	"strings"
)

// officialSince is a Talos minor version and the official system extensions that appeared with it; none has gone since.
type officialSince struct{ talos, names string }

// officialReleases follow the build targets in the tags of github.com/siderolabs/extensions, oldest first. A name that
// came with a later patch (gpio-pinctrl with v1.12.2) counts for the whole minor version.
func officialReleases() []officialSince {
	return []officialSince{
		{
			"v1.11",
			`amazon-ena amd-ucode amdgpu binfmt-misc bnx2-bnx2x btrfs chelsio-drivers chelsio-firmware cloudflared crun ctr
			drbd dvb-cx23885 dvb-m88ds3103 ecr-credential-provider fuse3 gasket-driver glibc gvisor gvisor-debug hailort
			hello-world-service i915 intel-ice-firmware intel-ucode iscsi-tools kata-containers lldpd mdadm mei metal-agent
			nebula newt nfsd nfsrahead nonfree-kmod-nvidia-lts nonfree-kmod-nvidia-production nut-client
			nvidia-container-toolkit-lts nvidia-container-toolkit-production nvidia-fabricmanager-lts
			nvidia-fabricmanager-production nvidia-open-gpu-kernel-modules-lts nvidia-open-gpu-kernel-modules-production
			nvme-cli panfrost qemu-guest-agent qlogic-firmware realtek-firmware revpi-firmware spin stargz-snapshotter
			tailscale tenstorrent thunderbolt uinput usb-modem-drivers util-linux-tools v4l-uvc-drivers vc4
			vmtoolsd-guest-agent wasmedge xdma-driver xen-guest-agent youki zerotier zfs`,
		},
		{
			"v1.12",
			`bird2 gpio-pinctrl mellanox-mstflint multipath-tools netbird nfs-utils nvidia-gdrdrv-device soci-snapshotter
			trident-iscsi-tools usb-audio-drivers xe`,
		},
		{"v1.13", "intel-npu joydev px-fuse rockchip-rknn uhid"},
	}
}

// Extensions returns the official system extensions of a full Talos version in full (siderolabs/qemu-guest-agent),
// sorted; none for a version that is not supported. Your own Factory may have others.
func Extensions(talos string) []string {
	if CheckTalos(talos) != nil {
		return nil
	}

	stated, _ := parseVersion("Talos", talos)

	var names []string

	for _, release := range officialReleases() {
		if !stated.before(minorVersion(release.talos)) {
			for _, name := range strings.Fields(release.names) {
				names = append(names, officialExtensions+name)
			}
		}
	}

	slices.Sort(names)

	return names
}

// RenamedExtensions are former names of official extensions and what the Image Factory takes them for.
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
