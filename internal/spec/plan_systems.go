package spec

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"talos-proxmox/internal/systems"
)

// talosOS is the default operating system of classes.
const talosOS = "talos"

// Formats of settings of templates of systems other than Talos.
var (
	buildFormat = format{
		regexp.MustCompile(`^[0-9][0-9a-z]{0,29}([.-][0-9a-z]{1,30}){0,5}$`),
		"is not a build number that can be part of a VM's name; write the publisher's, such as 20260712-2537: digits, lower-case letters, hyphens and dots, with a digit first",
	}
	typedChecksumFormat = format{
		regexp.MustCompile(`^(sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128})$`),
		"is not a checksum with its algorithm; write sha256:, sha384: or sha512: and the lower-case digits that its publisher shows",
	}
	packageFormat = format{
		regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9+._@:-]*$`),
		"is not the name of a package; write each in its own entry, such as htop",
	}
	zoneFormat = format{
		regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}$`),
		"is not a time zone; write it as timedatectl list-timezones does, such as Europe/Berlin",
	}
	windowsZoneFormat = format{
		regexp.MustCompile(`^[A-Za-z][A-Za-z0-9 .()+-]*$`),
		"is not a time zone of Windows; write it as tzutil /l does, such as W. Europe Standard Time",
	}
	localeFormat = format{
		regexp.MustCompile(`^(C|POSIX|[a-z]{2,3}_[A-Z]{2})(\.[A-Za-z0-9-]+)?(@[a-z]+)?$`),
		"is not a locale; write it as en_US.UTF-8",
	}
	windowsLocaleFormat = format{
		regexp.MustCompile(`^[a-z]{2,3}(-[A-Z][a-z]{3})?-[A-Z]{2}$`), "is not a locale of Windows; write it as en-US",
	}
	isoFormat = format{
		regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]:iso/[A-Za-z0-9][A-Za-z0-9+._-]*\.(iso|ISO)$`),
		"is not the volume of an ISO; write it as local:iso/windows-server-2025.iso",
	}
	editionFormat = format{
		regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9 ._()-]{0,99}$`),
		"is not an edition of Windows; write it as dism /Get-WimInfo shows it, such as Windows Server 2025 SERVERSTANDARDCORE",
	}
)

// setKeys returns the keys with values that classes of Talos do not have.
func (c SystemConfig) setKeys() []string { return keysWithValues(c, "os", "hosts", "secureBoot") }

// setKeys returns the keys with values.
func (c WindowsMedia) setKeys() []string { return keysWithValues(c) }

// keysWithValues returns the keys of a configuration that have a value, except some.
func keysWithValues(config any, without ...string) (keys []string) {
	value := reflect.ValueOf(config)
	for _, f := range configFields(value.Type()) {
		fieldValue := value.FieldByIndex(f.index)
		if empty := fieldValue.Kind() == reflect.Map && fieldValue.Len() == 0; !fieldValue.IsZero() && !empty &&
			!slices.Contains(without, f.key) {
			keys = append(keys, f.key)
		}
	}

	return keys
}

// rejectKeys reports keys that have no meaning here.
func (p *planner) rejectKeys(path string, keys []string, remedy string) {
	for _, key := range keys {
		p.problems.Add(path+"."+key, nil, "%s", remedy)
	}
}

// planSystem plans a class of a system other than Talos.
func (p *planner) planSystem(path string, c TemplateConfig, t *Template) {
	known, _ := systems.Find(systems.Name(c.OS))
	talosKeys := map[string]bool{
		"version": c.Version != "", "extensions": len(c.Extensions) > 0, "kernelArgs": len(c.KernelArgs) > 0,
		"acceptAnyExtension": c.AcceptAnyExtension, "gpu": c.GPU != GPUTemplateConfig{}, "source": t.Source == SourceISO,
	}
	maps.DeleteFunc(talosKeys, func(_ string, isSet bool) bool { return !isSet })
	p.rejectKeys(path, slices.Sorted(maps.Keys(talosKeys)), "is a key of Talos' templates; remove it, or os")

	if t.Source == SourceImport {
		p.problems.Add(path+".source", c.Source, "is for Talos: the build of %s starts the system with a seed that only the "+
			"host's shell can write; remove it, and set the host's ssh", known.Title)
	}

	s := (&System{
		OS: c.OS, Release: c.Release, Build: c.Build, User: c.User, Packages: c.Packages,
		SSHKeys: p.checkSSHKeys(path+".sshKeys", c.SSHKeys), Timezone: c.Timezone, Locale: c.Locale,
		SecureBoot: known.Hardware.SignedBoot, VLAN: c.VLAN, BuildMinutes: c.BuildMinutes,
		Checksum: p.checksum(path+".checksum", c.Checksum),
	}).WithDefaults()
	t.System, t.Platform = s, ""
	t.Name = strings.Join([]string{c.OS, c.Release, c.Build, t.Key}, "-")

	p.planRelease(path, c, known, s)
	p.checkFormat(path+".user", c.User, userFormat)
	p.checkBuildSettings(path, c, known)

	if c.SecureBoot != nil {
		s.SecureBoot = *c.SecureBoot
		if s.SecureBoot && !known.Hardware.SignedBoot {
			p.problems.Add(
				path+".secureBoot", true, "is not possible: the boot loader of %s is not signed; remove it", known.Title,
			)
		}
	}

	for key, size := range map[string][2]int{
		"diskGiB": {c.DiskGiB, known.MinDiskGiB}, "memoryMiB": {c.MemoryMiB, known.MinMemoryMiB},
	} {
		if size[0] != 0 && size[0] < size[1] {
			p.problems.Add(path+"."+key, size[0], "is too small for %s; use at least %d", known.Title, size[1])
		}
	}

	if known.Name == systems.Windows {
		p.planWindows(path, c, s)
	} else {
		p.rejectKeys(
			path+".windows", c.Windows.setKeys(), "is a key of Windows' templates; remove it, or set os to windows",
		)
	}
}

// planRelease checks release and build of a template, and sets the URL of its image.
func (p *planner) planRelease(path string, c TemplateConfig, known systems.System, s *System) {
	names := make([]string, 0, len(known.Releases))
	for _, r := range known.Releases {
		names = append(names, r.Name)
	}

	release, found := known.Release(c.Release)
	switch {
	case c.Release == "":
		p.addMissing(path+".release", "is missing; choose from %s", strings.Join(names, ", "))
	case !found && c.Release != "" && !p.isUndecrypted(path+".release"):
		p.problems.Add(
			path+".release", c.Release, "is not a known release of %s; %s", known.Title, Suggest(c.Release, names),
		)
	}

	if c.Build == "" {
		p.addMissing(path+".build",
			"is missing; set the publisher's build number: images of the same name change every few weeks")
	} else {
		p.checkFormat(path+".build", c.Build, buildFormat)
	}

	if known.Format == systems.Medium {
		if c.URL != "" {
			p.problems.Add(path+".url", nil, "is not used for %s, whose medium is windows.iso; remove it", known.Title)
		}

		return
	}

	if known.Format == systems.Backup && c.Checksum == "" {
		p.addMissing(path+".checksum", "is missing; set that of the file, which the host compares, as sha256:…")
	}

	s.URL = cmp.Or(c.URL, release.URL(c.Build))
	if address, err := url.Parse(s.URL); c.URL != "" && !p.isUndecrypted(path+".url") && (err != nil || address.Host == "" ||
		address.User != nil || address.Scheme != "https" && address.Scheme != "http") {
		p.problems.Add(path+".url", nil, "is not the address of a file; write it as https://…, without a user")
	}

	if found && s.URL == "" {
		p.addMissing(path+".url",
			"is missing: the images of %s have no permanent URL; set that of this build, such as url: https://…", known.Title)
	}
}

// checkBuildSettings checks packages, time zone and locale.
func (p *planner) checkBuildSettings(path string, c TemplateConfig, known systems.System) {
	if !known.Packages && len(c.Packages) > 0 {
		p.problems.Add(path+".packages", nil, "cannot be installed in templates of %s; remove it", known.Title)
	}

	for i, name := range c.Packages {
		at := fmt.Sprintf("%s.packages[%d]", path, i)

		p.checkNotEmpty(at, name, "write it as htop")

		if p.checkFormat(at, name, packageFormat) && slices.Contains(c.Packages[:i], name) {
			p.problems.Add(at, name, "is listed twice; remove one of the two")
		}
	}

	zones, locales := zoneFormat, localeFormat

	switch known.Name { //nolint:exhaustive // the others are alike
	case systems.NixOS:
		for key, value := range map[string]string{"timezone": c.Timezone, "locale": c.Locale} {
			if value != "" {
				p.problems.Add(path+"."+key, nil, "belongs in the configuration from which the image is built; remove it")
			}
		}
	case systems.Windows:
		zones, locales = windowsZoneFormat, windowsLocaleFormat
	}

	p.checkFormat(path+".timezone", c.Timezone, zones)
	p.checkFormat(path+".locale", c.Locale, locales)
}

// planWindows plans the installation media of Windows. The host verifies all of them, so every checksum is required.
func (p *planner) planWindows(path string, c TemplateConfig, s *System) {
	w := c.Windows
	at := path + ".windows."
	w.VirtioChecksum = p.checksum(at+"virtioChecksum", w.VirtioChecksum)
	w.CloudbaseChecksum = p.checksum(at+"cloudbaseChecksum", w.CloudbaseChecksum)
	s.Windows = &w

	for _, one := range []struct{ path, value, remedy string }{
		{path + ".checksum", c.Checksum, "set that of the ISO file, as sha256:…"},
		{at + "iso", w.ISO, "set the volume of your medium, such as local:iso/windows-server-2025.iso"},
		{at + "virtioIso", w.VirtioISO, "set the volume of the medium with the virtio drivers, such as local:iso/virtio-win-0.1.271.iso"},
		{at + "virtioChecksum", c.Windows.VirtioChecksum, "set that of the ISO file, as sha256:…"},
		{at + "cloudbaseUrl", w.CloudbaseURL, "set where cloudbase-init's installer is, such as https://…/CloudbaseInitSetup_x64.msi"},
		{at + "cloudbaseChecksum", c.Windows.CloudbaseChecksum, "set that of the installer, as sha256:…"},
		{at + "edition", w.Edition, "set it as dism /Get-WimInfo shows it on the medium"},
	} {
		if one.value == "" {
			p.addMissing(one.path, "is missing; %s", one.remedy)
		}
	}

	p.checkFormat(at+"iso", w.ISO, isoFormat)
	p.checkFormat(at+"virtioIso", w.VirtioISO, isoFormat)
	p.checkFormat(at+"edition", w.Edition, editionFormat)

	if address, err := url.Parse(w.CloudbaseURL); w.CloudbaseURL != "" && !p.isUndecrypted(at+"cloudbaseUrl") &&
		(err != nil || address.Host == "" || address.User != nil || address.Scheme != "https") {
		p.problems.Add(at+"cloudbaseUrl", nil, "is not the address of a file; write it as https://…, without a user")
	}
}

// checksum returns a checksum with its algorithm, or an empty text for an invalid one.
func (p *planner) checksum(path, text string) string {
	if !p.checkFormat(path, text, typedChecksumFormat) {
		return ""
	}

	return text
}

// checkSSHKeys checks and returns public keys, with their comments.
func (p *planner) checkSSHKeys(path string, keys []string) []string {
	for i, key := range keys {
		at := fmt.Sprintf("%s[%d]", path, i)
		if _, ok := parsePublicKey(key); !ok && !p.isUndecrypted(at) {
			p.problems.Add(at, key, "is not a public key; write a line of a file such as ~/.ssh/id_ed25519.pub")
		}
	}

	return slices.Clone(keys)
}

// Downloaded reports whether Proxmox downloads an image for the template. The user provides the media of Windows, and
// Proxmox cannot download backups such as that of NixOS: the host does, when it builds the template.
func (t Template) Downloaded() bool {
	if t.System == nil {
		return true
	}

	return t.System.Definition().Format == systems.DiskImage
}

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
	Windows *WindowsMedia `json:",omitempty" pulumi:"windows,optional"`

	// Hardware is the hardware of its machines.
	Hardware systems.Hardware
}

// Definition returns the definition of the system.
func (s System) Definition() systems.System {
	known, _ := systems.Find(systems.Name(s.OS))

	return known
}

// WithDefaults returns a copy with the defaults; nil = Talos.
func (s *System) WithDefaults() *System {
	if s == nil {
		return nil
	}

	filled, known := *s, s.Definition()
	filled.Timezone, filled.Locale = cmp.Or(s.Timezone, known.Timezone), cmp.Or(s.Locale, known.Locale)
	filled.BuildMinutes, filled.Hardware = cmp.Or(s.BuildMinutes, known.Minutes), known.Hardware
	filled.Packages = slices.Sorted(slices.Values(s.Packages))

	return &filled
}

// Name returns its name for users, without the release: Debian.
func (s System) Name() string { return s.Definition().Title }

// Version returns release and build: 13-20260712-2537.
func (s System) Version() string { return s.Release + "-" + s.Build }

// Title returns its full name for users: Debian 13, build 20260712-2537.
func (s System) Title() string {
	return s.Name() + " " + s.Release + ", build " + s.Build
}
