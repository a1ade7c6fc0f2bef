package components

import (
	"fmt"
	"strconv"
	"strings"

	"talos-proxmox/components/scripts"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/systems"
)

type (
	// System is the operating system of a template other than Talos.
	//
	// Its fields, from their own comments (make schema):
	//   - OS string: The operating system: debian, ubuntu, arch, nixos or windows.
	//   - Release string: The release: 13 for Debian, 24.04 for Ubuntu.
	//   - Build string: The build of the image, as its publisher numbers it: 20260712-2537.
	//   - URL string: The address of the backup of NixOS, which the host downloads. Default: none.
	//   - Checksum string: The checksum of the image with its algorithm: sha512:…. For NixOS and Windows it is verified
	//     on the host; a SystemImage is verified when it is downloaded. Default: none.
	//   - Packages []string: Packages to install in addition to the guest agent, for Debian, Ubuntu and Arch Linux.
	//     Default: none.
	//   - User string: The user that cloud-init creates on machines. Default: the image's own.
	//   - SSHKeys []string: The user's public SSH keys. Default: none.
	//   - Timezone string: The time zone. Default: Etc/UTC, UTC for Windows.
	//   - Locale string: The locale. Default: C.UTF-8, en-US for Windows.
	//   - SecureBoot bool: Enable Secure Boot. Default: false.
	//   - VLAN int: The VLAN tag of the network in which the template is built. Default: 0, untagged.
	//   - BuildMinutes int: How many minutes a build may take. Default: 15; 30 for NixOS, 90 for Windows.
	//   - Windows *WindowsMedia: Additional installation media of Windows. Default: none.
	System = spec.System
	// WindowsMedia are the installation media of Windows.
	//
	// Its fields, from their own comments (make schema):
	//   - VirtioISO string: The volume of the ISO with the virtio drivers, 0.1.258 or newer.
	//   - VirtioChecksum string: The SHA-256 or SHA-512 of that ISO, as sha256:… or sha512:….
	//   - CloudbaseURL string: The address of cloudbase-init's installer (MSI), which the host downloads.
	//   - CloudbaseChecksum string: The SHA-256 or SHA-512 of the installer, as sha256:… or sha512:….
	//   - Edition string: The name of the edition on the ISO.
	WindowsMedia = spec.WindowsMedia
)

const secondsPerMinute = 60

func validateSystem(s *System, found *problem.List, a GoldenTemplateArgs) {
	known, ok := systems.Find(systems.Name(s.OS))
	if !ok {
		found.Add("system.os", s.OS, "is not a system; choose debian, ubuntu, arch, nixos or windows")

		return
	}

	if a.Talos != nil {
		found.Add("talos", nil, "is set, and system is %s; set only one of the two", s.OS)
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

func systemRecipe(s *System, a GoldenTemplateArgs, owner string) recipe {
	known := s.Definition()
	image := strings.Join([]string{s.OS, s.Release, s.Build, s.Checksum}, "-")
	about := fmt.Sprintf("%s %s, build %s", known.Title, s.Release, s.Build)

	secureBoot := "0"
	if s.SecureBoot {
		secureBoot = "1"
	}

	parameters := append(a.commonParameters(owner, image, about),
		scripts.Parameter{Name: "vlan", Value: strconv.Itoa(s.VLAN)},
		scripts.Parameter{Name: "secure_boot", Value: secureBoot},
		scripts.Parameter{Name: "user", Value: s.User},
		scripts.Parameter{Name: "ssh_keys", Value: strings.Join(s.SSHKeys, "\n")},
		scripts.Parameter{Name: "cloud_init", Value: known.Hardware.CloudInitDrive},
	)

	name, own := recipeParameters(s, known)
	r := recipe{
		compose:    func(all []scripts.Parameter) string { return scripts.SystemTemplate(name, all) },
		parameters: withProvenance(append(parameters, own...)),
		unhashed: []scripts.Parameter{
			{Name: "minutes", Value: strconv.Itoa(s.BuildMinutes)}, {Name: "seeds", Value: a.ImageDatastore},
		},
		lockSeconds: lockSeconds + s.BuildMinutes*secondsPerMinute,
	}

	if known.Format == systems.Backup {
		r.unhashed = append(r.unhashed, scripts.Parameter{Name: "url", Value: s.URL})
	}

	if s.Windows != nil {
		r.unhashed = append(r.unhashed, scripts.Parameter{Name: "cloudbase_url", Value: s.Windows.CloudbaseURL})
	}

	return r
}

// recipeParameters returns the recipe's name and its own parameters.
func recipeParameters(s *System, known systems.System) (string, []scripts.Parameter) {
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
