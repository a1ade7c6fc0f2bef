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

// talosOS is the operating system of classes that name none.
const talosOS = "talos"

// The forms of what templates of other systems than Talos say.
var (
	buildForm = form{
		regexp.MustCompile(`^[0-9][0-9a-z]{0,29}([.-][0-9a-z]{1,30}){0,5}$`),
		"does not name one build, as part of a VM's name; write the publisher's number of it, such as 20260712-2537: digits, lower-case letters, hyphens and dots, with a digit first",
	}
	publishedForm = form{
		regexp.MustCompile(`^(sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128})$`),
		"is not a checksum with its algorithm; write sha256:, sha384: or sha512: and the lower-case digits that its publisher states",
	}
	packageForm = form{
		regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9+._@:-]*$`),
		"is not the name of a package; write each in its own entry, such as htop",
	}
	zoneForm = form{
		regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}$`),
		"is not a time zone; write it as timedatectl list-timezones does, such as Europe/Berlin",
	}
	windowsZoneForm = form{
		regexp.MustCompile(`^[A-Za-z][A-Za-z0-9 .()+-]*$`),
		"is not a time zone of Windows; write it as tzutil /l does, such as W. Europe Standard Time",
	}
	localeForm = form{
		regexp.MustCompile(`^(C|POSIX|[a-z]{2,3}_[A-Z]{2})(\.[A-Za-z0-9-]+)?(@[a-z]+)?$`),
		"is not a locale; write it as en_US.UTF-8",
	}
	windowsLocaleForm = form{
		regexp.MustCompile(`^[a-z]{2,3}(-[A-Z][a-z]{3})?-[A-Z]{2}$`), "is not a locale of Windows; write it as en-US",
	}
	isoForm = form{
		regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]:iso/[A-Za-z0-9][A-Za-z0-9+._-]*\.(iso|ISO)$`),
		"is not the volume of an ISO; write it as local:iso/windows-server-2025.iso",
	}
	editionForm = form{
		regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9 ._()-]{0,99}$`),
		"is not an edition of Windows; write it as dism /Get-WimInfo shows it, such as Windows Server 2025 SERVERSTANDARDCORE",
	}
)

// stated are the keys of a class that are set and that Talos' classes do not have.
func (c SystemConfig) stated() []string { return statedKeys(c, "os", "hosts") }

// stated are the keys that are set.
func (c WindowsMedia) stated() []string { return statedKeys(c) }

// statedKeys are the keys of a configuration that have a value, but for some.
func statedKeys(config any, without ...string) (keys []string) {
	value := reflect.ValueOf(config)
	for _, f := range fieldsOf(value.Type()) {
		set := value.FieldByIndex(f.index)
		if empty := set.Kind() == reflect.Map && set.Len() == 0; !set.IsZero() && !empty && !slices.Contains(without, f.key) {
			keys = append(keys, f.key)
		}
	}

	return keys
}

// refuseKeys reports keys that have no meaning where they are.
func (p *planner) refuseKeys(path string, keys []string, remedy string) {
	for _, key := range keys {
		p.problems.Add(path+"."+key, nil, "%s", remedy)
	}
}

// planSystem judges what a class of another system than Talos says.
func (p *planner) planSystem(path string, c TemplateConfig, t *Template) {
	known, _ := systems.Find(systems.Name(c.OS))
	stated := map[string]bool{
		"version": c.Version != "", "extensions": len(c.Extensions) > 0, "kernelArgs": len(c.KernelArgs) > 0,
		"acceptAnyExtension": c.AcceptAnyExtension, "gpu": c.GPU != GPUTemplateConfig{}, "source": t.Source == SourceISO,
	}
	maps.DeleteFunc(stated, func(_ string, is bool) bool { return !is })
	p.refuseKeys(path, slices.Sorted(maps.Keys(stated)), "is a key of Talos' templates; remove it, or os")

	s := (&System{
		OS: c.OS, Release: c.Release, Build: c.Build, User: c.User, Packages: c.Packages,
		SSHKeys: p.sshKeys(path+".sshKeys", c.SSHKeys), Timezone: c.Timezone, Locale: c.Locale,
		SecureBoot: known.Hardware.SignedBoot, VLAN: c.VLAN, BuildMinutes: c.BuildMinutes,
		Checksum: p.published(path+".checksum", c.Checksum),
	}).WithDefaults()
	t.System, t.Platform = s, ""
	t.Name = strings.Join([]string{c.OS, c.Release, c.Build, t.Key}, "-")

	p.planRelease(path, c, known, s)
	p.check(path+".user", c.User, userForm)
	p.checkSettings(path, c, known)

	if c.SecureBoot != nil {
		s.SecureBoot = *c.SecureBoot
		if s.SecureBoot && !known.Hardware.SignedBoot {
			p.problems.Add(
				path+".secureBoot", true, "is not possible: the boot loader of %s is not signed; remove it", known.Title,
			)
		}
	}

	for key, size := range map[string][2]int{
		"diskGiB": {c.DiskGiB, known.LeastDiskGiB}, "memoryMiB": {c.MemoryMiB, known.LeastMemoryMiB},
	} {
		if size[0] != 0 && size[0] < size[1] {
			p.problems.Add(path+"."+key, size[0], "is too small for %s; use at least %d", known.Title, size[1])
		}
	}

	if known.Name == systems.Windows {
		p.planWindows(path, c, s)
	} else {
		p.refuseKeys(
			path+".windows", c.Windows.stated(), "is a key of Windows' templates; remove it, or set os to windows",
		)
	}
}

// planRelease decides which build of which release a template has, and where that is.
func (p *planner) planRelease(path string, c TemplateConfig, known systems.System, s *System) {
	names := make([]string, 0, len(known.Releases))
	for _, r := range known.Releases {
		names = append(names, r.Name)
	}

	release, found := known.Release(c.Release)
	switch {
	case c.Release == "" && !p.problems.Has(path+".release"):
		p.problems.Add(path+".release", nil, "is missing; choose from %s", strings.Join(names, ", "))
	case !found && c.Release != "" && !p.unknown(path+".release"):
		p.problems.Add(
			path+".release", c.Release, "is not a known release of %s; %s", known.Title, Suggest(c.Release, names),
		)
	}

	if c.Build == "" && !p.problems.Has(path+".build") {
		p.problems.Add(path+".build", nil,
			"is missing; set the publisher's number of the image that is meant: under one name there is another image every few weeks")
	} else {
		p.check(path+".build", c.Build, buildForm)
	}

	if known.Format == systems.Medium {
		if c.URL != "" {
			p.problems.Add(path+".url", nil, "has no use for %s, whose medium is windows.iso; remove it", known.Title)
		}

		return
	}

	if known.Format == systems.Backup && c.Checksum == "" && !p.problems.Has(path+".checksum") {
		p.problems.Add(path+".checksum", nil, "is missing; set that of the file, which the host compares, as sha256:…")
	}

	s.URL = cmp.Or(c.URL, release.URL(c.Build))
	if address, err := url.Parse(s.URL); c.URL != "" && !p.unknown(path+".url") && (err != nil || address.Host == "" ||
		address.User != nil || address.Scheme != "https" && address.Scheme != "http") {
		p.problems.Add(path+".url", nil, "is not the address of a file; write it as https://…, without a user")
	}

	if found && s.URL == "" {
		p.problems.Add(path+".url", nil,
			"is missing: the images of %s have no lasting address; set where this build is, such as url: https://…", known.Title)
	}
}

// checkSettings judges what a build sets.
func (p *planner) checkSettings(path string, c TemplateConfig, known systems.System) {
	if !known.Packages && len(c.Packages) > 0 {
		p.problems.Add(path+".packages", nil, "cannot be installed in templates of %s; remove it", known.Title)
	}

	for i, name := range c.Packages {
		at := fmt.Sprintf("%s.packages[%d]", path, i)

		p.requireText(at, name, "write it as htop")

		if p.check(at, name, packageForm) && slices.Contains(c.Packages[:i], name) {
			p.problems.Add(at, name, "is listed twice; remove one of the two")
		}
	}

	zones, locales := zoneForm, localeForm

	switch known.Name { //nolint:exhaustive // the others are alike
	case systems.NixOS:
		for key, value := range map[string]string{"timezone": c.Timezone, "locale": c.Locale} {
			if value != "" {
				p.problems.Add(path+"."+key, nil, "belongs into the configuration that the image is built from; remove it")
			}
		}
	case systems.Windows:
		zones, locales = windowsZoneForm, windowsLocaleForm
	}

	p.check(path+".timezone", c.Timezone, zones)
	p.check(path+".locale", c.Locale, locales)
}

// planWindows judges what Windows is installed from. The host checks all of it, so that none of the checksums can be
// left out.
func (p *planner) planWindows(path string, c TemplateConfig, s *System) {
	w := c.Windows
	at := path + ".windows."
	w.VirtioChecksum = p.published(at+"virtioChecksum", w.VirtioChecksum)
	w.CloudbaseChecksum = p.published(at+"cloudbaseChecksum", w.CloudbaseChecksum)
	s.Windows = &w

	for _, one := range []struct{ path, value, remedy string }{
		{path + ".checksum", c.Checksum, "set that of the medium's file, as sha256:…"},
		{at + "iso", w.ISO, "set the volume of your medium, such as local:iso/windows-server-2025.iso"},
		{at + "virtioIso", w.VirtioISO, "set the volume of the medium with the virtio drivers, such as local:iso/virtio-win-0.1.271.iso"},
		{at + "virtioChecksum", c.Windows.VirtioChecksum, "set that of the medium's file, as sha256:…"},
		{at + "cloudbaseUrl", w.CloudbaseURL, "set where cloudbase-init's installer is, such as https://…/CloudbaseInitSetup_x64.msi"},
		{at + "cloudbaseChecksum", c.Windows.CloudbaseChecksum, "set that of the installer, as sha256:…"},
		{at + "edition", w.Edition, "set it as dism /Get-WimInfo shows it on the medium"},
	} {
		if one.value == "" {
			p.problems.Add(one.path, nil, "is missing; %s", one.remedy)
		}
	}

	p.check(at+"iso", w.ISO, isoForm)
	p.check(at+"virtioIso", w.VirtioISO, isoForm)
	p.check(at+"edition", w.Edition, editionForm)

	if address, err := url.Parse(w.CloudbaseURL); w.CloudbaseURL != "" && !p.unknown(at+"cloudbaseUrl") &&
		(err != nil || address.Host == "" || address.User != nil || address.Scheme != "https") {
		p.problems.Add(at+"cloudbaseUrl", nil, "is not the address of a file; write it as https://…, without a user")
	}
}

// published judges a checksum with its algorithm; what is none is empty.
func (p *planner) published(path, text string) string {
	if !p.check(path, text, publishedForm) {
		return ""
	}

	return text
}

// sshKeys are public keys with their comments.
func (p *planner) sshKeys(path string, keys []string) []string {
	for i, key := range keys {
		at := fmt.Sprintf("%s[%d]", path, i)
		if _, ok := normalKey(key); !ok && !p.unknown(at) {
			p.problems.Add(at, key, "is not a public key; write a line of a file such as ~/.ssh/id_ed25519.pub")
		}
	}

	return slices.Clone(keys)
}

// Downloaded says whether Proxmox downloads an image for the template. Windows' medium is the user's own, and NixOS'
// backup is none of what Proxmox downloads: the host does, when it builds the template.
func (t Template) Downloaded() bool {
	if t.System == nil {
		return true
	}

	return t.System.Known().Format == systems.DiskImage
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

	// Hardware is what its machines have.
	Hardware systems.Hardware
}

// Known is what is known of the system.
func (s System) Known() systems.System {
	known, _ := systems.Find(systems.Name(s.OS))

	return known
}

// WithDefaults returns a copy with the defaults; nil = the template is of Talos.
func (s *System) WithDefaults() *System {
	if s == nil {
		return nil
	}

	filled, known := *s, s.Known()
	filled.Timezone, filled.Locale = cmp.Or(s.Timezone, known.Timezone), cmp.Or(s.Locale, known.Locale)
	filled.BuildMinutes, filled.Hardware = cmp.Or(s.BuildMinutes, known.Minutes), known.Hardware
	filled.Packages = slices.Sorted(slices.Values(s.Packages))

	return &filled
}

// Name returns what people call it, without its release: Debian.
func (s System) Name() string { return s.Known().Title }

// Version is release and build: 13-20260712-2537.
func (s System) Version() string { return s.Release + "-" + s.Build }

// Title returns what people call it: Debian 13, build 20260712-2537.
func (s System) Title() string {
	return s.Name() + " " + s.Release + ", build " + s.Build
}
