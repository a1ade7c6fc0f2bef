package vmdiff

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/internal/spec"
)

// Effect is what a change does to a machine that runs.
type Effect int

// The effects, the gravest last.
const (
	Nothing    Effect = iota // only new machines get it
	InPlace                  // while it runs
	Upgrade                  // Talos is upgraded, one machine at a time
	Restart                  // the machine restarts
	Replace                  // a new machine takes its place, and its data is gone
	Impossible               // `up` would end with an error
)

// String says it as a table does.
func (e Effect) String() string {
	return [...]string{"no effect", "in place", "upgrade", "restart", "**replaced, with its data**", "**refused**"}[e]
}

// Change is a property of a machine that is to change.
type Change struct {
	// Property is the VM's, as its resource calls it: networkDevices.
	Property string
	// Key is where the stack file sets it, below the pool: memoryMiB; network.… and clone are the cluster's,
	// templates.… the class's. Empty = nowhere in particular.
	Key    string
	Effect Effect
	// What changes, with its values: memory 8192 → 16384 MiB.
	What string
	// Value is the wanted one, and Why says what is wrong with it and what to do, of a change that is impossible.
	Value, Why string
}

// Compare finds what changes where a machine is to become another one. The rules are those of the provider's update
// (terraform-provider-proxmox 0.69.1, vmUpdate and vmUpdateDiskLocationAndSize): it reboots for most of them.
func Compare(old, wanted Machine) []Change {
	c := comparison{}
	c.place(old, wanted)
	c.fields(old, wanted, Restart)
	changed(&c, "bootOrders", "templates.source", Restart, "boots an ISO as well %v → %v", old.ISO, wanted.ISO)
	c.network(old, wanted)

	if !slices.Equal(old.Devices, wanted.Devices) {
		c.add("hostpcis", "gpu", Restart, fmt.Sprintf("GPUs %s → %s", names(old.Devices), names(wanted.Devices)))
	}

	c.disks(old, wanted)
	c.talos(old, wanted)
	c.fields(old, wanted, InPlace)

	if !slices.Equal(old.Tags, wanted.Tags) {
		c.add("tags", "tags", InPlace, "tags")
	}

	if wanted.Cluster == "" {
		c.ofNoCluster(old, wanted)
	}

	return c
}

// ofNoCluster judges what cloud-init reads. The provider cannot take a card's address out again; and where it writes
// anything for cloud-init, it writes the password as it was read back, ten asterisks.
func (c *comparison) ofNoCluster(old, wanted Machine) {
	if len(wanted.More) < len(old.More) {
		c.refuse("initialization", "extraNICs", "", fmt.Sprintf("would take a network card out of %s, whose address no run takes "+
			"out of cloud-init; set it again, or recreate the machine: a worker where count goes down and up again", old.Name))
	} else if !slices.Equal(old.More, wanted.More) {
		c.add("initialization", "extraNICs", Restart, "another address of a further card")
	}

	if wanted.SearchDomain != "" {
		changed(c, "initialization", "network.searchDomain", Restart, "search domain %s → %s",
			cmp.Or(old.SearchDomain, "none"), wanted.SearchDomain)
	}

	for i := range *c {
		change := &(*c)[i]
		if change.Property == "initialization" && change.Effect == Restart && (old.Password || wanted.Password) {
			change.Effect = Impossible
			change.Why = fmt.Sprintf("cannot be changed while cloud-init has a password for %s, which the provider would set to "+
				"ten asterisks (%s); put it back, or recreate the machine: a worker where count goes down and up again",
				old.Name, change.What)
		}

		change.Why = strings.Replace(change.Why, "a worker where", "the last one of its pool where", 1)
	}
}

// inPlace are a VM's properties beside [Fields] that change while it runs; what only says how to do it is among them.
var inPlace = []string{
	"description", "disks", "hookScriptFileId", "migrate", "name", "nodeName", "protection", "reboot", "smbios", "started",
	"stopOnDestroy", "tags", "cdrom",
}

// EffectOf is what a change of a VM's property does as far as its name tells.
func EffectOf(property string) Effect {
	known := func(f Field) bool { return f.top() == property && f.Effect == InPlace }
	if strings.HasPrefix(property, "timeout") || slices.Contains(inPlace, property) || slices.ContainsFunc(Fields, known) {
		return InPlace
	}

	return Restart
}

type comparison []Change

func (c *comparison) add(property, key string, effect Effect, what string) {
	*c = append(*c, Change{Property: property, Key: key, Effect: effect, What: what})
}

func (c *comparison) refuse(property, key, value, why string) {
	*c = append(*c, Change{Property: property, Key: key, Effect: Impossible, What: why, Value: value, Why: why})
}

func changed[T comparable](c *comparison, property, key string, effect Effect, format string, old, wanted T) {
	if old != wanted {
		c.add(property, key, effect, fmt.Sprintf(format, old, wanted))
	}
}

// place compares what a machine is and where. A machine with a device cannot migrate; the provider replaces it then.
func (c *comparison) place(old, wanted Machine) {
	if old.VMID != wanted.VMID {
		c.add("vmId", "firstVmid", Replace, "another VMID")
	}

	switch {
	case old.Host == wanted.Host || old.VMID != wanted.VMID:
	case len(wanted.Devices) > 0:
		c.add("nodeName", "host", Replace, fmt.Sprintf("host %s → %s, with a GPU", old.Host, wanted.Host))
	case len(old.Devices) > 0:
		c.refuse(
			"nodeName", "host", wanted.Host,
			fmt.Sprintf("is another host than %s, where %s has a GPU that it gives up in this run only; "+
				"change the host in a later run", old.Host, old.Name),
		)
	case old.Linked:
		c.refuse(
			"nodeName", "host", wanted.Host,
			fmt.Sprintf("is another host than %s, where %s is a linked clone: its disk lives on its template's there, "+
				"and Proxmox moves no such machine; set %[1]s, or take the machine out and put it back", old.Host, old.Name),
		)
	default:
		c.add("nodeName", "host", InPlace, fmt.Sprintf("moves from %s to %s", old.Host, wanted.Host))
	}
}

// talos compares the versions of Talos, where it is known what runs.
func (c *comparison) talos(old, wanted Machine) {
	if old.Schematic != "" && wanted.Schematic != "" && old.Schematic != wanted.Schematic {
		c.add("", "templates.extensions", Upgrade, "another schematic")
	}

	if old.Talos == "" || old.Talos == wanted.Talos {
		return
	}

	const key = "templates.version"

	if problem := spec.TalosStep(old.Talos, wanted.Talos, wanted.AllowDowngrade); problem != "" {
		c.refuse("", key, wanted.Talos, fmt.Sprintf("cannot follow Talos %s, which %s runs: it %s", old.Talos, old.Name, problem))

		return
	}

	c.add("", key, Upgrade, fmt.Sprintf("Talos %s → %s", old.Talos, wanted.Talos))
}

// network compares cards and the first card's address, which the machine reads at its start.
func (c *comparison) network(old, wanted Machine) {
	for i := range max(len(old.Cards), len(wanted.Cards)) {
		key := func(name string) string {
			if i > 0 {
				return fmt.Sprintf("extraNICs[%d].%s", i-1, name)
			}

			return "network." + name
		}

		switch {
		case i >= len(old.Cards):
			c.add("networkDevices", "extraNICs", Restart, "a network card more")
		case i >= len(wanted.Cards):
			c.add("networkDevices", "extraNICs", Restart, "a network card less")
		default:
			was, is := old.Cards[i], wanted.Cards[i]
			changed(c, "networkDevices", key("bridge"), Restart, "bridge %v → %v", was.Bridge, is.Bridge)
			changed(c, "networkDevices", key("vlan"), Restart, "VLAN %v → %v", was.VLAN, is.VLAN)
			changed(c, "networkDevices", key("mtu"), Restart, "MTU %v → %v", was.MTU, is.MTU)

			if was.MAC != is.MAC {
				c.add("networkDevices", map[bool]string{true: "mac", false: "extraNICs"}[i == 0], Restart, "another MAC address")
			}
		}
	}

	switch {
	case (old.Address == "") != (wanted.Address == ""):
		c.add("initialization", "network.addressing", Restart, "another way to its address")
	case old.Address != wanted.Address:
		c.add("initialization", "address", Restart, "another address")
	case old.Prefix != wanted.Prefix:
		c.add("initialization", "network.cidr", Restart, fmt.Sprintf("network /%d → /%d", old.Prefix, wanted.Prefix))
	}

	if old.Address != "" && wanted.Address != "" {
		changed(
			c, "initialization", "network.gateway", Restart, "gateway %s → %s", cmp.Or(old.Gateway, "none"),
			cmp.Or(wanted.Gateway, "none"),
		)
	}
	// Name servers once set are never taken out of a VM again; without any, they are not compared.
	if len(wanted.DNS) > 0 && !slices.Equal(old.DNS, wanted.DNS) {
		c.add(
			"initialization", "network.dns", Restart,
			fmt.Sprintf("name servers %s → %s", cmp.Or(strings.Join(old.DNS, ", "), "none"), strings.Join(wanted.DNS, ", ")),
		)
	}
}

// disks compares disks by their interfaces. Nothing takes a disk from a machine that is there, and none shrinks.
func (c *comparison) disks(old, wanted Machine) {
	places, gone := map[string]Disk{}, []string{}
	for _, d := range old.Disks {
		places[d.Interface] = d
		if !slices.ContainsFunc(wanted.Disks, func(w Disk) bool { return w.Interface == d.Interface }) {
			gone = append(gone, fmt.Sprintf("%s (%d GiB on %s)", d.Interface, d.SizeGiB, d.Datastore))
		}
	}

	if len(gone) > 0 {
		c.refuse(
			"disks", "extraDisks", "",
			fmt.Sprintf("disk %s of %s would have to be taken out, and no run takes a disk out of a machine; set it again, "+
				"or recreate the machine without it: a worker where count goes down and up again", strings.Join(
				gone, ", ",
			), old.Name),
		)

		return
	}

	for i, is := range wanted.Disks {
		key := func(name string) string {
			if i == 0 {
				return map[string]string{"sizeGiB": "diskGiB", "datastore": "datastore"}[name]
			}

			return fmt.Sprintf("extraDisks[%d].%s", i-1, name)
		}

		was, found := places[is.Interface]
		switch {
		case !found && wanted.TakesVolumes && strings.HasPrefix(is.Interface, "scsi"):
			c.refuse(
				"disks", key("interface"), fmt.Sprintf("%q", is.Interface),
				fmt.Sprintf("is where the Proxmox CSI plugin may have attached a volume to %s since: a disk there would take the "+
					"volume's place; leave interface out, or choose one from virtio0 to virtio15", old.Name),
			)
		case !found:
			c.add(
				"disks", fmt.Sprintf("extraDisks[%d]", i-1), InPlace,
				fmt.Sprintf("disk %s of %d GiB is added", is.Interface, is.SizeGiB),
			)

			continue
		case is.SizeGiB < was.SizeGiB:
			c.refuse("disks", key("sizeGiB"), fmt.Sprint(
				is.SizeGiB,
			), fmt.Sprintf("is less than the %d GiB that %s has at %s, and no disk shrinks; use at least %[1]d",
				was.SizeGiB, old.Name, is.Interface))
		case is.SizeGiB > was.SizeGiB && was.Shared:
			c.refuse("disks", key("sizeGiB"), fmt.Sprint(
				is.SizeGiB,
			), fmt.Sprintf("is more than the %d GiB that %s has at %s, where it is a linked clone that shares its "+
				"template's volume, and the provider does not resize that; set %[1]d, or recreate the machine: a worker where count goes down and up again",
				was.SizeGiB, old.Name, is.Interface))
		case is.SizeGiB > was.SizeGiB:
			c.add("disks", key("sizeGiB"), InPlace, fmt.Sprintf("disk %s %d → %d GiB", is.Interface, was.SizeGiB, is.SizeGiB))
		}

		switch {
		case was.Datastore == is.Datastore:
		case i == 0:
			meant := ""
			if spec.Distance(was.Datastore, is.Datastore) <= 2 { // letters
				meant = " (did you mean that?)"
			}

			// With it goes the EFI disk, whose size the provider takes for another one whenever both change.
			c.refuse("disks", key("datastore"), fmt.Sprintf(
				"%q", is.Datastore,
			), fmt.Sprintf("is not %s%s, where %s has its system disk, "+
				"and no run moves that with its EFI disk; set %[1]s, or recreate the machine: a worker where count goes down and up again", was.Datastore, meant, old.Name))
		default:
			c.add(
				"disks", key("datastore"), Restart,
				fmt.Sprintf("disk %s %s → %s, off while it is copied", is.Interface, was.Datastore, is.Datastore),
			)
		}
	}
}

func names(devices []Device) string {
	list := make([]string, 0, len(devices))
	for _, d := range devices {
		list = append(list, cmp.Or(d.Mapping, d.PCI))
	}

	return cmp.Or(strings.Join(list, ", "), "none")
}

// pathOf leads to a change's key in the stack file.
func pathOf(n spec.VM, key string) string {
	class, _, _ := strings.Cut(n.Template.Key, "-nvidia-")
	switch rest, template := strings.CutPrefix(key, "templates."); {
	case template:
		return "templates." + class + "." + rest
	case strings.HasPrefix(key, "network."), key == "clone":
		return n.Parent() + "." + key
	case key == "firstVmid" && n.Own["vmid"] != "":
		return n.Own["vmid"]
	case key == "address" && n.Own["address"] == "":
		return n.Path + ".firstAddress"
	case key == "host" && n.Own["host"] == "", key == "mac" && n.Own["mac"] == "":
		return n.Path
	default:
		return n.At(key)
	}
}
