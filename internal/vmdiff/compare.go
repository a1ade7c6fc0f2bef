package vmdiff

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/internal/spec"
)

// Effect is the effect of a change on a running machine.
type Effect int

// The effects, the most severe last.
const (
	Nothing    Effect = iota // affects new machines only
	InPlace                  // while the machine runs
	Upgrade                  // Talos is upgraded, one machine at a time
	Restart                  // the machine restarts
	Replace                  // the machine is replaced and its data lost
	Impossible               // `up` would end with an error
)

// String returns the text for tables.
func (e Effect) String() string {
	return [...]string{"no effect", "in place", "upgrade", "restart", "**replaced, with its data**", "**refused**"}[e]
}

// Change is a property of a machine that changes.
type Change struct {
	// Property is the VM's, as its resource calls it: networkDevices.
	Property string
	// Key is its path in the stack file, relative to the pool: memoryMiB; network.… and clone belong to the cluster,
	// templates.… to the class. Empty = no single key.
	Key    string
	Effect Effect
	// What describes the change: memory 8192 → 16384 MiB.
	What string
	// Value is the wanted value of an impossible change, and Why the reason and the remedy.
	Value, Why string
}

// Compare returns the changes from one machine to another, with the effects of the provider's update
// (terraform-provider-proxmox 0.69.1, vmUpdate and vmUpdateDiskLocationAndSize), which reboots for most of them.
func Compare(old, wanted Machine) []Change {
	c := comparison{}
	c.comparePlacement(old, wanted)
	c.compareFields(old, wanted, Restart)
	addIfChanged(&c, "bootOrders", "templates.source", Restart, "boots an ISO as well %v → %v", old.ISO, wanted.ISO)
	c.compareNetwork(old, wanted)

	c.compareDevices(old, wanted)
	c.compareDisks(old, wanted)
	c.compareProtection(old, wanted)
	c.compareTalos(old, wanted)
	c.compareFields(old, wanted, InPlace)

	if !slices.Equal(old.Tags, wanted.Tags) {
		c.add("tags", "tags", InPlace, "tags")
	}

	if wanted.Cluster == "" {
		c.compareCloudInit(old, wanted)
	}

	return c
}

// compareCloudInit compares what cloud-init reads on plain machines. The provider cannot remove the address of a card;
// and any write for cloud-init includes the password as it was read back, ten asterisks.
func (c *comparison) compareCloudInit(old, wanted Machine) {
	if len(wanted.ExtraAddresses) < len(old.ExtraAddresses) {
		c.addImpossible("initialization", "extraNICs", "", fmt.Sprintf("would remove a network card from %s, whose address no run "+
			"removes from cloud-init; set it again, or "+recreate, old.Name))
	} else if !slices.Equal(old.ExtraAddresses, wanted.ExtraAddresses) {
		c.add("initialization", "extraNICs", Restart, "another address of an additional card")
	}

	if wanted.SearchDomain != "" {
		addIfChanged(c, "initialization", "network.searchDomain", Restart, "search domain %s → %s",
			cmp.Or(old.SearchDomain, "none"), wanted.SearchDomain)
	}

	for i := range *c {
		change := &(*c)[i]
		if change.Property == "initialization" && change.Effect == Restart && (old.Password || wanted.Password) {
			change.Effect = Impossible
			change.Why = fmt.Sprintf("cannot be changed while cloud-init has a password for %s, which the provider would set to "+
				"ten asterisks (%s); restore the setting, or "+recreate, old.Name, change.What)
		}

		change.Why = strings.Replace(change.Why, "for a worker", "for the last one of its pool", 1)
	}
}

// recreate is the remedy for changes that no run can make.
const recreate = "recreate the machine: for a worker, lower count and raise it again"

// inPlaceProperties are properties of a VM, besides [Fields], that change while it runs; some only affect how changes
// are made.
var inPlaceProperties = []string{
	"description", "disks", "hookScriptFileId", "migrate", "name", "nodeName", "protection", "reboot", "smbios", "started",
	"stopOnDestroy", "tags", "cdrom",
}

// EffectOf returns the effect of changing a VM's top-level property, as far as its name tells.
func EffectOf(property string) Effect {
	inPlace := func(f Field) bool { return f.topLevel() == property && f.Effect == InPlace }
	if strings.HasPrefix(property, "timeout") || slices.Contains(inPlaceProperties, property) ||
		slices.ContainsFunc(Fields, inPlace) {
		return InPlace
	}

	return Restart
}

type comparison []Change

func (c *comparison) add(property, key string, effect Effect, what string) {
	*c = append(*c, Change{Property: property, Key: key, Effect: effect, What: what})
}

func (c *comparison) addImpossible(property, key, value, why string) {
	*c = append(*c, Change{Property: property, Key: key, Effect: Impossible, What: why, Value: value, Why: why})
}

func addIfChanged[T comparable](c *comparison, property, key string, effect Effect, format string, old, wanted T) {
	if old != wanted {
		c.add(property, key, effect, fmt.Sprintf(format, old, wanted))
	}
}

// keyOfFirewall is the key of a cluster that switches Proxmox' firewall on.
const keyOfFirewall = "firewall.proxmox"

// comparePlacement compares VMID and host. A machine with a device cannot migrate: the provider replaces it. One with
// volumes that outlive it cannot migrate either, and would not find local ones on another host.
func (c *comparison) comparePlacement(old, wanted Machine) {
	if old.VMID != wanted.VMID {
		c.add("vmId", "firstVmid", Replace, "another VMID")
	}

	switch {
	case old.Host == wanted.Host || old.VMID != wanted.VMID:
	case len(old.volumes()) > 0: // QemuMigrate.pm of qemu-server 9.2.6: "owned by other VM"
		c.addImpossible(
			"nodeName", "host", wanted.Host,
			fmt.Sprintf("is not %s, where %s has volumes that outlive it (%s), and Proxmox does not migrate those; set %[1]s. With "+
				"volumes on shared datastores only, migrate the machine in Proxmox, refresh, and then set its new host",
				old.Host, old.Name, strings.Join(old.volumes(), ", ")),
		)
	case len(wanted.Devices) > 0:
		with := "with devices of it"
		if wanted.HasGPUs {
			with = "with a GPU"
		}

		c.add("nodeName", "host", Replace, fmt.Sprintf("host %s → %s, %s", old.Host, wanted.Host, with))
	case len(old.Devices) > 0:
		c.addImpossible(
			"nodeName", "host", wanted.Host,
			fmt.Sprintf("is not %s, where %s has devices of the host until this run removes them; change the host in a later run",
				old.Host, old.Name),
		)
	case old.Linked:
		c.addImpossible(
			"nodeName", "host", wanted.Host,
			fmt.Sprintf("is not %s, where %s is a linked clone: its disk depends on the template's there, and Proxmox cannot "+
				"migrate it; set %[1]s, or remove the machine and add it again", old.Host, old.Name),
		)
	default:
		c.add("nodeName", "host", InPlace, fmt.Sprintf("moves from %s to %s", old.Host, wanted.Host))
	}
}

// compareProtection compares what protects a machine's data, which is decided when it is created: the provider replaces
// a VM for another TPM, Talos enrolls keys of Secure Boot in new firmware only, and encrypts only empty volumes.
func (c *comparison) compareProtection(old, wanted Machine) {
	const remedy = "restore it, or create machines with it in a pool of their own and remove these in a later run (docs/encryption.md)"

	if old.TPM != wanted.TPM {
		c.addImpossible("tpmState", "tpm", fmt.Sprint(wanted.TPM),
			fmt.Sprintf("is not what %s was created with; %s", old.Name, remedy))
	}

	if old.SecureBoot != nil && wanted.SecureBoot != nil && *old.SecureBoot != *wanted.SecureBoot {
		c.addImpossible("", "templates.secureBoot", fmt.Sprint(*wanted.SecureBoot),
			fmt.Sprintf("is not what %s was created with; %s", old.Name, remedy))
	}

	if volumes := old.Volumes.Unreadable(wanted.Volumes); len(volumes) > 0 {
		remedy := remedy
		if old.Volumes.String() == "" { // as before security: hardened
			remedy = "set encryption: {state: none, ephemeral: none}" + strings.TrimPrefix(remedy, "restore it")
		}

		c.addImpossible("", "encryption", "", fmt.Sprintf(
			"does not open %s of %s (it has %s; planned, patches included: %s): Talos encrypts a volume only when it creates it; %s",
			strings.Join(volumes, ", "), old.Name, cmp.Or(old.Volumes.String(), "none"), cmp.Or(wanted.Volumes.String(), "none"), remedy))
	}
}

// compareTalos compares versions of Talos and schematics, where the running ones are known.
func (c *comparison) compareTalos(old, wanted Machine) {
	if old.Schematic != "" && wanted.Schematic != "" && old.Schematic != wanted.Schematic {
		c.add("", "templates.extensions", Upgrade, "another schematic")
	}

	if old.Talos == "" || old.Talos == wanted.Talos {
		return
	}

	const key = "templates.version"

	if problem := spec.CheckTalosUpgrade(old.Talos, wanted.Talos, wanted.AllowDowngrade); problem != "" {
		c.addImpossible("", key, wanted.Talos, fmt.Sprintf("cannot follow Talos %s, which %s runs: it %s", old.Talos, old.Name, problem))

		return
	}

	c.add("", key, Upgrade, fmt.Sprintf("Talos %s → %s", old.Talos, wanted.Talos))
}

// compareNetwork compares cards and the first card's address, which the machine reads at boot.
func (c *comparison) compareNetwork(old, wanted Machine) {
	if len(old.Cards) > 0 && len(wanted.Cards) > 0 { // all cards have as many
		addIfChanged(c, "networkDevices", "nicQueues", Restart, "queues of network devices %v → %v", old.Cards[0].Queues,
			wanted.Cards[0].Queues)
	}

	for i := range max(len(old.Cards), len(wanted.Cards)) {
		key := func(name string) string {
			if i > 0 {
				return fmt.Sprintf("extraNICs[%d].%s", i-1, name)
			}

			return "network." + name
		}

		switch {
		case i >= len(old.Cards):
			c.add("networkDevices", "extraNICs", Restart, "a network card is added")
		case i >= len(wanted.Cards):
			c.add("networkDevices", "extraNICs", Restart, "a network card is removed")
		default:
			was, is := old.Cards[i], wanted.Cards[i]
			addIfChanged(c, "networkDevices", key("bridge"), Restart, "bridge %v → %v", was.Bridge, is.Bridge)
			addIfChanged(c, "networkDevices", key("vlan"), Restart, "VLAN %v → %v", was.VLAN, is.VLAN)
			addIfChanged(c, "networkDevices", key("mtu"), Restart, "MTU %v → %v", was.MTU, is.MTU)

			addIfChanged(c, "networkDevices", keyOfFirewall, Restart, "Proxmox' firewall on a network device %v → %v", was.Firewall,
				is.Firewall)

			if was.MAC != is.MAC {
				c.add("networkDevices", map[bool]string{true: "mac", false: "extraNICs"}[i == 0], Restart, "another MAC address")
			}
		}
	}

	switch {
	case (old.Address == "") != (wanted.Address == ""):
		c.add("initialization", "network.addressing", Restart, "another kind of addressing")
	case old.Address != wanted.Address && wanted.Cluster != "":
		c.addImpossible("initialization", "address", strconv.Quote(wanted.Address), fmt.Sprintf("is not %s, by which every step of a run knows "+
			"%s; set %[1]s, or "+recreate, old.Address, old.Name))
	case old.Address != wanted.Address:
		c.add("initialization", "address", Restart, "another address")
	case old.Prefix != wanted.Prefix:
		c.add("initialization", "network.cidr", Restart, fmt.Sprintf("network /%d → /%d", old.Prefix, wanted.Prefix))
	}

	if old.Address != "" && wanted.Address != "" {
		addIfChanged(
			c, "initialization", "network.gateway", Restart, "gateway %s → %s", cmp.Or(old.Gateway, "none"),
			cmp.Or(wanted.Gateway, "none"),
		)
	}

	addIfChanged(c, "initialization", "network.ipv6", Restart, "IPv6 address %s → %s", cmp.Or(old.AddressIPv6, "none"),
		cmp.Or(wanted.AddressIPv6, "none"))
	addIfChanged(c, "initialization", "network.ipv6", Restart, "IPv6 gateway %s → %s",
		cmp.Or(old.GatewayIPv6, "none"), cmp.Or(wanted.GatewayIPv6, "none"))
	// No run removes name servers from a VM, so a plan without any changes nothing.
	if len(wanted.DNS) > 0 && !slices.Equal(old.DNS, wanted.DNS) {
		c.add(
			"initialization", "network.dns", Restart,
			fmt.Sprintf("name servers %s → %s", cmp.Or(strings.Join(old.DNS, ", "), "none"), strings.Join(wanted.DNS, ", ")),
		)
	}
}

// keyPath returns the path of a change's key in the stack file.
func keyPath(n spec.VM, key string) string {
	switch rest, ok := strings.CutPrefix(key, "templates."); {
	case ok:
		return "templates." + n.Template.Class + "." + rest
	case strings.HasPrefix(key, "network.") && n.OverridePaths[key] != "":
		return n.OverridePaths[key]
	case strings.HasPrefix(key, "network."), key == "clone", key == keyOfFirewall:
		return n.Parent() + "." + key
	case key == "firstVmid" && n.OverridePaths["vmid"] != "":
		return n.OverridePaths["vmid"]
	case key == "address" && n.OverridePaths["address"] == "":
		return n.Path + ".firstAddress"
	case key == "host" && n.OverridePaths["host"] == "", key == "mac" && n.OverridePaths["mac"] == "":
		return n.Path
	default:
		return n.KeyPath(key)
	}
}
