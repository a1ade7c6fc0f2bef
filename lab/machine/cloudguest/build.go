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

// build is a system that was started with a seed: cloud-init sets it up as the seed says, and the seed's own commands
// run.
type build struct {
	os    string
	guest Guest
	hw    datacentre.Hardware
	w     World

	// errors are cloud-init's, of which it tells when it is asked for its status.
	errors []string
	// poweroff says that the system is to switch itself off, at once without waiting for its services.
	poweroff, forced bool
	// volatileJournal says that the journal continues in memory.
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

// fail notes an error of cloud-init, which continues all the same.
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

// runModules is cloud-init's modules, in their order.
func (b *build) runModules(ctx context.Context, c cloudConfig) error {
	network := b.requestAddresses()

	for _, f := range c.WriteFiles {
		b.guest.Files[f.Path] = f.Content
	}

	// An empty list, and one without root, makes the image's own user.
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

	// The network can leave while packages come.
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

// requestAddresses asks for addresses, as images do without any configuration.
func (b *build) requestAddresses() bool {
	b.guest.Addresses = map[string]netip.Prefix{}
	found := false

	for _, card := range b.hw.NICs {
		found = b.guest.lease(card, b.w) || found
	}

	return found
}

// install installs all packages or none, as their managers do.
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

// runCommand is an entry of runcmd. A unit of its own begins when cloud-init has ended, where it waits for that.
func (b *build) runCommand(ctx context.Context, words []string) error {
	if len(words) > 0 && words[0] == "systemd-run" {
		words = words[1:]
		for len(words) > 0 && strings.HasPrefix(words[0], "--") {
			words = words[1:]
		}
	}

	return b.shell(ctx, words)
}

// shutDown is what services write when the system ends by itself.
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
