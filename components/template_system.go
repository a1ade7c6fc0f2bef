package components

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/components/scripts"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/systems"
)

// System is the operating system of a template other than Talos.
type System struct {
	// The operating system: debian, ubuntu, arch, nixos or windows.
	OS string `pulumi:"os"`
	// The release: 13 for Debian, 24.04 for Ubuntu.
	Release string `pulumi:"release"`
	// The build of the image, as its publisher numbers it: 20260712-2537.
	Build string `pulumi:"build"`
	// The address of the backup of NixOS, which the host downloads. Default: none.
	URL string `pulumi:"url,optional"`
	// The checksum of the image with its algorithm: sha512:…. For NixOS and Windows it is verified on the host; a
	// SystemImage is verified when it is downloaded. Default: none.
	Checksum string `pulumi:"checksum,optional"`
	// Packages to install in addition to the guest agent, for Debian, Ubuntu and Arch Linux. Default: none.
	Packages []string `pulumi:"packages,optional"`
	// The user that cloud-init creates on machines. Default: the image's own.
	User string `pulumi:"user,optional"`
	// The user's public SSH keys. Default: none.
	SSHKeys []string `pulumi:"sshKeys,optional"`
	// The time zone. Default: Etc/UTC, UTC for Windows.
	Timezone string `pulumi:"timezone,optional"`
	// The locale. Default: C.UTF-8, en-US for Windows.
	Locale string `pulumi:"locale,optional"`
	// Enable Secure Boot. Default: false.
	SecureBoot bool `pulumi:"secureBoot,optional"`
	// The VLAN tag of the network in which the template is built. Default: 0, untagged.
	VLAN int `pulumi:"vlan,optional"`
	// How many minutes a build may take. Default: 15; 30 for NixOS, 90 for Windows.
	BuildMinutes int `pulumi:"buildMinutes,optional"`
	// Additional installation media of Windows. Default: none.
	Windows *WindowsMedia `pulumi:"windows,optional"`
}

// WindowsMedia are the installation media of Windows, in addition to its ISO.
type WindowsMedia struct {
	// The volume of the ISO with the virtio drivers: local:iso/virtio-win-0.1.271.iso.
	VirtioISO string `pulumi:"virtioIso"`
	// Its checksum: sha256:….
	VirtioChecksum string `pulumi:"virtioChecksum"`
	// The address of cloudbase-init's installer (MSI).
	CloudbaseURL string `pulumi:"cloudbaseUrl"`
	// Its checksum: sha256:….
	CloudbaseChecksum string `pulumi:"cloudbaseChecksum"`
	// The name of the edition on the ISO: Windows Server 2025 SERVERSTANDARDCORE.
	Edition string `pulumi:"edition"`
}

// secondsOfMinute turns the time of a build into that of a lock.
const secondsOfMinute = 60

func (s *System) withDefaults() *System {
	if s == nil {
		return nil
	}

	own := *s
	known, _ := systems.Find(systems.Name(own.OS))
	setDefault(&own.Timezone, known.Timezone)
	setDefault(&own.Locale, known.Locale)
	setDefault(&own.BuildMinutes, known.Minutes)
	own.Packages = slices.Sorted(slices.Values(own.Packages))

	return &own
}

// known is what is known of the system.
func (s *System) known() systems.System {
	known, _ := systems.Find(systems.Name(s.OS))

	return known
}

// version is release and build.
func (s *System) version() string { return s.Release + "-" + s.Build }

// imaged says whether there is a volume that it is made of.
func (s *System) imaged() bool { return s.known().Format != systems.Backup }

func (s *System) validate(found *problem.List, a GoldenTemplateArgs) {
	known, ok := systems.Find(systems.Name(s.OS))
	if !ok {
		found.Add("system.os", s.OS, "is not a system; choose debian, ubuntu, arch, nixos or windows")

		return
	}

	if a.Talos != nil {
		found.Add("talos", nil, "says something else than system, which is %s; set only one of the two", s.OS)
	}

	required(found, "system.release", s.Release, "the release, such as "+known.Releases[0].Name)
	required(found, "system.build", s.Build, "the publisher's number of the image, such as 20260712-2537")

	if a.Source != SourceImage {
		found.Add("source", a.Source, "is not a source of %s; leave it out", known.Title)
	}

	if s.SecureBoot && !known.Hardware.SignedBoot {
		found.Add("system.secureBoot", nil,
			"is not possible: the boot loader of %s is not signed; leave it out", known.Title)
	}

	if known.Format != systems.DiskImage {
		required(found, "system.checksum", s.Checksum, "the checksum that the host compares, such as sha256:…")
	}

	switch {
	case known.Format == systems.Backup:
		required(found, "system.url", s.URL, "the address of the backup, such as https://….vma.zst")
	case known.Format == systems.Medium && s.Windows == nil:
		found.Add("system.windows", nil, "is missing; set the media that Windows is installed from")
	}
}

// recipe returns how its template is made.
func (s *System) recipe(a GoldenTemplateArgs, owner string) recipe {
	known := s.known()
	image := strings.Join([]string{s.OS, s.Release, s.Build, s.Checksum}, "-")
	about := fmt.Sprintf("%s %s, build %s", known.Title, s.Release, s.Build)

	secureBoot := "0"
	if s.SecureBoot {
		secureBoot = "1"
	}

	parameters := append(a.common(owner, image, about),
		scripts.Parameter{Name: "vlan", Value: strconv.Itoa(s.VLAN)},
		scripts.Parameter{Name: "secure_boot", Value: secureBoot},
		scripts.Parameter{Name: "user", Value: s.User},
		scripts.Parameter{Name: "ssh_keys", Value: strings.Join(s.SSHKeys, "\n")},
		scripts.Parameter{Name: "cloud_init", Value: known.Hardware.CloudInitDrive},
	)

	name, own := s.seed(known)
	r := recipe{
		compose:    func(all []scripts.Parameter) string { return scripts.SystemTemplate(name, all) },
		parameters: withProvenance(append(parameters, own...)),
		beside: []scripts.Parameter{
			{Name: "minutes", Value: strconv.Itoa(s.BuildMinutes)}, {Name: "seeds", Value: a.ImageDatastore},
		},
		lockSeconds: lockSeconds + s.BuildMinutes*secondsOfMinute,
	}

	if known.Format == systems.Backup {
		r.beside = append(r.beside, scripts.Parameter{Name: "url", Value: s.URL})
	}

	if s.Windows != nil {
		r.beside = append(r.beside, scripts.Parameter{Name: "cloudbase_url", Value: s.Windows.CloudbaseURL})
	}

	return r
}

// seed returns the recipe's name, and its own parameters.
func (s *System) seed(known systems.System) (string, []scripts.Parameter) {
	switch known.Format {
	case systems.Backup:
		return scripts.RecipeNixOS, []scripts.Parameter{{Name: "checksum", Value: s.Checksum}}
	case systems.Medium:
		files := systems.WindowsSeed(s.Release, s.Windows.Edition, s.Timezone, s.Locale)

		return scripts.RecipeWindows, []scripts.Parameter{
			{Name: "checksum", Value: s.Checksum},
			{Name: "virtio", Value: s.Windows.VirtioISO},
			{Name: "virtio_checksum", Value: s.Windows.VirtioChecksum},
			{Name: "cloudbase_checksum", Value: s.Windows.CloudbaseChecksum},
			{Name: "answers", Value: files.Answers},
			{Name: "first_logon", Value: files.FirstLogon},
			{Name: "cloudbase_conf", Value: files.Cloudbase},
			{Name: "cloudbase_unattend_conf", Value: files.CloudbaseUnattend},
		}
	default:
		return scripts.RecipeCloud, []scripts.Parameter{
			{Name: "user_data", Value: systems.UserData(known.Name, s.Packages, s.Timezone, s.Locale)},
			{Name: "meta_data", Value: systems.MetaData},
		}
	}
}
