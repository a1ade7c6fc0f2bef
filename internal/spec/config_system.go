package spec

// SystemConfig is what a class of an operating system other than Talos says about it. Such templates are built in the
// host's shell: the system starts once, installs what is missing, and is cleaned.
type SystemConfig struct {
	// The operating system. Machines of clusters are made from Talos' templates, those of `machines` from the others.
	OS string `json:"os,omitempty" jsonschema:"default=talos,enum=talos,enum=debian,enum=ubuntu,enum=arch,enum=nixos,enum=windows"`
	// The release, such as 13 for Debian, 24.04 for Ubuntu, rolling for Arch Linux, 25.11 for NixOS, server-2025 for
	// Windows. Systems other than Talos need it.
	Release string `json:"release,omitempty" jsonschema:"example=\"13\""`
	// The build of the image as its publisher numbers it, which is part of the template's name. Systems other than Talos
	// need it: images of the same name change.
	Build string `json:"build,omitempty" jsonschema:"example=20260712-2537"`
	// The address of the image. Default: where the system's publisher has the build; NixOS needs it.
	URL string `json:"url,omitempty"`
	// Packages to install beside the guest agent, of Debian, Ubuntu and Arch Linux.
	Packages []string `json:"packages,omitempty" jsonschema:"example=htop"`
	// The user that cloud-init makes on machines; the template itself has none. Default: the image's own.
	User string `json:"user,omitempty" jsonschema:"example=ops"`
	// The public keys that the user logs in with, as `authorized_keys` has them; the template itself has none.
	SSHKeys []string `json:"sshKeys,omitempty"`
	// The time zone. Default: Etc/UTC; UTC on Windows, which has names of its own.
	Timezone string `json:"timezone,omitempty" jsonschema:"example=Europe/Berlin"`
	// The language and its encoding. Default: C.UTF-8; en-US on Windows.
	Locale string `json:"locale,omitempty" jsonschema:"example=en_US.UTF-8"`
	// Start signed boot loaders only. Default: true for Debian, Ubuntu and Windows; the others' are not signed.
	SecureBoot *bool `json:"secureBoot,omitempty"`
	// The VLAN tag of the network in which the system is built; it needs DHCP and, for packages, a mirror.
	VLAN int `json:"vlan,omitempty" jsonschema:"default=0,minimum=0,maximum=4094"`
	// How many minutes a build may take. Default: 15; 30 for NixOS, 90 for Windows.
	BuildMinutes int `json:"buildMinutes,omitempty" jsonschema:"minimum=0,maximum=600"`
	// Hosts that have a template of the class although no machine of the plan is made from it there.
	Hosts []string `json:"hosts,omitempty" jsonschema:"example=pve1"`
	// What Windows is installed from.
	Windows WindowsConfig `json:"windows,omitempty"`
}

// WindowsConfig is what Windows is installed from. Media, licence and edition are the user's own.
type WindowsConfig struct {
	// The volume of the installation medium on every host that has the template; `checksum` is that of its file.
	ISO string `json:"iso,omitempty" jsonschema:"example=local:iso/windows-server-2025.iso"`
	// The volume of the medium with the virtio drivers, 0.1.258 or newer.
	VirtioISO string `json:"virtioIso,omitempty" jsonschema:"example=local:iso/virtio-win-0.1.271.iso"`
	// The SHA-256 or SHA-512 of that medium's file, as sha256:… or sha512:….
	VirtioChecksum string `json:"virtioChecksum,omitempty"`
	// The address of cloudbase-init's installer, an MSI, which the host downloads.
	CloudbaseURL string `json:"cloudbaseUrl,omitempty"`
	// The SHA-256 or SHA-512 of the installer, as sha256:… or sha512:….
	CloudbaseChecksum string `json:"cloudbaseChecksum,omitempty"`
	// The edition as the medium names it.
	Edition string `json:"edition,omitempty" jsonschema:"example=Windows Server 2025 SERVERSTANDARDCORE"`
}
