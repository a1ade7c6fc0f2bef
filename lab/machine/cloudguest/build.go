package cloudguest

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"talos-proxmox/lab/datacentre"
)

// agentPackage is the package of the QEMU guest agent.
const agentPackage = "qemu-guest-agent"

// build is a template build: a system that was booted with a seed, which cloud-init applies and whose commands it runs.
type build struct {
	os    string
	guest Guest
	hw    datacentre.Hardware
	w     World

	// errors are the errors that cloud-init status lists.
	errors []string
	// poweroff: the system powers off; forced: without stopping its services.
	poweroff, forced bool
	// volatileJournal: the journal is written to memory only.
	volatileJournal bool
}

func (b *build) run(ctx context.Context, s seed) (Guest, bool, error) {
	b.w.Print("cloud-init: datasource NoCloud [seed=cidata]")

	if err := b.w.Sleep(ctx, b.w.Boot); err != nil || s.InstanceID == b.guest.InstanceID() {
		return b.guest, false, err
	}

	b.guest.newInstance(s.InstanceID)
	b.guest.Files[outputLog] = "Cloud-init running modules\n"
	b.guest.Files[randomSeed] = "a seed of random numbers"

	config, err := s.config()
	if err != nil {
		b.fail("%s", err)
	}

	if err := b.runModules(ctx, config); err != nil {
		return b.guest, false, err
	}

	for _, words := range config.RunCmd {
		if err := b.runCommand(ctx, words); err != nil {
			return b.guest, false, err
		}
	}

	b.shutDown()

	return b.guest, b.poweroff, nil
}

// fail records an error of cloud-init, which continues.
func (b *build) fail(format string, a ...any) {
	text := fmt.Sprintf(format, a...)
	b.errors = append(b.errors, text)
	b.print(text)
}

// print writes to cloud-init's log and to the console.
func (b *build) print(text string) {
	b.guest.Files[outputLog] += text + "\n"
	b.w.Print(text)
}

// runModules runs cloud-init's modules in their order.
func (b *build) runModules(ctx context.Context, c cloudConfig) error {
	network := b.requestAddresses()

	for _, f := range c.WriteFiles {
		b.guest.Files[f.Path] = f.Content
	}

	// Unless the list is exactly root, cloud-init creates the image's default user.
	if !slices.Equal(c.Users, []string{"root"}) {
		b.guest.User = b.os
	}

	if c.Timezone != "" {
		if zoneExists(c.Timezone) {
			b.guest.Links[localtime] = zoneinfo + c.Timezone
		} else {
			b.fail("Invalid timezone %s, no file found at %s%s", c.Timezone, zoneinfo, c.Timezone)
		}
	}

	if !c.PackageUpdate && !c.PackageUpgrade && len(c.Packages) == 0 {
		return nil
	}

	// The network can fail during the download of packages.
	if err := b.w.Sleep(ctx, b.w.Install); err != nil {
		return err
	}

	if !network || b.w.Unplugged() {
		b.print("Err:1 trixie InRelease: Temporary failure resolving the mirror")
		b.fail("Failed to install the following packages: {%s}", strings.Join(c.Packages, ", "))

		return nil
	}

	b.install(c.Packages)

	return nil
}

// requestAddresses requests DHCP leases, as images do without configuration.
func (b *build) requestAddresses() bool {
	b.guest.Addresses = map[string]netip.Prefix{}
	found := false

	for _, card := range b.hw.NICs {
		found = b.guest.lease(card, b.w) || found
	}

	return found
}

// install installs all packages or none, as package managers do.
func (b *build) install(packages []string) {
	b.guest.Files["/var/lib/apt/lists/trixie_InRelease"] = "a list of packages"

	for _, name := range packages {
		if b.w.LacksPackage(name) {
			b.print("E: Unable to locate package " + name)
			b.fail("Failed to install the following packages: {%s}", name)

			return
		}
	}

	for _, name := range packages {
		b.guest.Files["/var/cache/apt/archives/"+name+".deb"] = "an archive"
		b.print("Setting up " + name + " ...")
	}

	b.guest.Packages = append(b.guest.Packages, packages...)
	b.guest.Agent = b.guest.Agent || slices.Contains(packages, agentPackage)
}

// runCommand runs an entry of runcmd. A transient unit (systemd-run) starts after cloud-init, if it waits for that.
func (b *build) runCommand(ctx context.Context, words []string) error {
	if len(words) > 0 && words[0] == "systemd-run" {
		words = words[1:]
		for len(words) > 0 && strings.HasPrefix(words[0], "--") {
			words = words[1:]
		}
	}

	return b.shell(ctx, words)
}

// shutDown does what services do on shutdown.
func (b *build) shutDown() {
	if b.poweroff && !b.forced {
		b.guest.Files[randomSeed] = "a seed of random numbers"
	}

	if b.poweroff && !b.volatileJournal {
		b.guest.writeJournal()
	}

	for path := range b.guest.Files {
		if strings.HasPrefix(path, "/run/") || strings.HasPrefix(path, "/tmp/") {
			delete(b.guest.Files, path)
		}
	}
}
