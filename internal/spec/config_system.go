package spec

// SystemConfig holds the settings of classes of operating systems other than Talos. Such templates are built on the
// host over SSH: the system boots once, installs what is missing, and is cleaned up.
type SystemConfig struct {
	// The operating system. Nodes need `talos`, plain machines one of the others.
	OS string `json:"os,omitempty" jsonschema:"default=talos,enum=talos,enum=debian,enum=ubuntu,enum=arch,enum=nixos,enum=windows"`
	// The release, such as 13 for Debian, 24.04 for Ubuntu, rolling for Arch Linux, 25.11 for NixOS, server-2025 for
	// Windows. Required for systems other than Talos.
	Release string `json:"release,omitempty" jsonschema:"example=\"13\""`
	// The publisher's build of the image, which is part of the template's name. Required for systems other than Talos,
	// because images of the same name change.
	Build string `json:"build,omitempty" jsonschema:"example=20260712-2537"`
	// The address of the image; required for NixOS. Default: the publisher's address of the build.
	URL string `json:"url,omitempty"`
	// Packages to install in addition to the guest agent, for Debian, Ubuntu and Arch Linux.
	Packages []string `json:"packages,omitempty" jsonschema:"example=htop"`
	// The user that cloud-init creates on machines; the template itself has none. Default: the image's default user.
	User string `json:"user,omitempty" jsonschema:"example=ops"`
	// The public SSH keys of that user, in the format of `authorized_keys`; the template itself has none.
	SSHKeys []string `json:"sshKeys,omitempty"`
	// The time zone. Default: Etc/UTC; UTC on Windows, which uses its own names.
	Timezone string `json:"timezone,omitempty" jsonschema:"example=Europe/Berlin"`
	// The locale. Default: C.UTF-8; en-US on Windows.
	Locale string `json:"locale,omitempty" jsonschema:"example=en_US.UTF-8"`
	// Enable Secure Boot. For Talos: use images and installers that are signed by the Image Factory, whose keys machines
	// enroll at their first boot; it cannot change while machines run. Default: true for Debian, Ubuntu and Windows,
	// otherwise false; the boot loaders of Arch Linux and NixOS are not signed.
	SecureBoot *bool `json:"secureBoot,omitempty"`
	// The VLAN tag of the network in which the template is built; it needs DHCP and, for packages, access to a mirror.
	VLAN int `json:"vlan,omitempty" jsonschema:"default=0,minimum=0,maximum=4094"`
	// How many minutes a build may take. Default: 15; 30 for NixOS, 90 for Windows.
	BuildMinutes int `json:"buildMinutes,omitempty" jsonschema:"minimum=0,maximum=600"`
	// Hosts that get a template of the class even if no planned machine needs it there.
	Hosts []string `json:"hosts,omitempty" jsonschema:"example=pve1"`
	// The installation media of Windows.
	Windows WindowsMedia `json:"windows,omitempty"`
}

// WindowsMedia are the installation media of Windows. You provide media and licence.
type WindowsMedia struct {
	// The volume of the installation ISO on every host that gets the template; `checksum` is its checksum.
	ISO string `json:"iso,omitempty" jsonschema:"example=local:iso/windows-server-2025.iso"`
	// The volume of the ISO with the virtio drivers, 0.1.258 or newer.
	VirtioISO string `json:"virtioIso,omitempty" jsonschema:"example=local:iso/virtio-win-0.1.271.iso" pulumi:"virtioIso"`
	// The SHA-256 or SHA-512 of that ISO, as sha256:… or sha512:….
	VirtioChecksum string `json:"virtioChecksum,omitempty" pulumi:"virtioChecksum"`
	// The address of cloudbase-init's installer (MSI), which the host downloads.
	CloudbaseURL string `json:"cloudbaseUrl,omitempty" pulumi:"cloudbaseUrl"`
	// The SHA-256 or SHA-512 of the installer, as sha256:… or sha512:….
	CloudbaseChecksum string `json:"cloudbaseChecksum,omitempty" pulumi:"cloudbaseChecksum"`
	// The name of the edition on the ISO.
	Edition string `json:"edition,omitempty" jsonschema:"example=Windows Server 2025 SERVERSTANDARDCORE" pulumi:"edition"`
}
