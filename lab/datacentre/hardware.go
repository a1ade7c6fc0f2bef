package datacentre

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/lab/schema"
)

// hardware is what a VM would be switched on with; called with the lock held.
func (d *Datacentre) hardware(v *vm, pci []PCIDevice) Hardware {
	c := v.Config
	hw := Hardware{
		Host: v.Host, VMID: v.ID, Name: v.name(), UUID: ParseProperties(c["smbios1"], "uuid").Get("uuid"),
		Cores: c.CPUs(), MemoryMiB: c.MemoryMiB(), NICs: c.nics(), PCI: pci,
		Firmware:     cmp.Or(c["bios"], "seabios"),
		AgentEnabled: ParseProperties(c["agent"], "enabled").Bool("enabled"),
	}
	slots := map[string]GuestDisk{}

	for _, dr := range c.drives() {
		vol := d.findVolume(v.Host, dr.volume())
		if isIndexed(dr.key, "unused") || isIndexed(dr.key, "efidisk") || isIndexed(dr.key, "tpmstate") || vol == nil {
			continue
		}

		if dr.cloudInit() {
			hw.CloudInit = c.cloudInit(v.name())
			hw.CloudInit.Drive = dr.key

			continue
		}

		slots[dr.key] = GuestDisk{Interface: dr.key, Volume: vol.ID, SizeBytes: vol.SizeBytes, CDROM: dr.cdrom()}
		hw.Disks = append(hw.Disks, slots[dr.key])
	}

	for _, key := range c.BootOrder() {
		if disk, ok := slots[key]; ok {
			hw.Boot = append(hw.Boot, disk)
		}
	}

	return hw
}

// CPUs are cores times sockets.
func (c Config) CPUs() int { return c.Number("cores", 1) * c.Number("sockets", 1) }

// MemoryMiB is the memory; PVE's default is 512.
func (c Config) MemoryMiB() int {
	n, err := strconv.Atoi(ParseProperties(c["memory"], "current").Get("current"))
	if err != nil {
		return 512
	}

	return n
}

// numbered returns the keys of a prefix in the order of their numbers.
func (c Config) numbered(prefix string) []string {
	keys := slices.DeleteFunc(slices.Collect(maps.Keys(c)), func(k string) bool { return !isIndexed(k, prefix) })
	slices.SortFunc(keys, func(a, b string) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}

		return strings.Compare(a, b)
	})

	return keys
}

func (c Config) nics() []NIC {
	var list []NIC

	for _, k := range c.numbered("net") {
		p := ParseProperties(c[k], "model")
		n := NIC{Name: k, Bridge: p.Get("bridge")}
		n.VLAN, _ = strconv.Atoi(p.Get("tag"))
		n.MTU, _ = strconv.Atoi(p.Get("mtu"))

		for _, m := range nicModels {
			if mac := p.Get(m); mac != "" {
				n.Model, n.MAC = m, strings.ToLower(mac)
			}
		}

		if !p.Bool("link_down") {
			list = append(list, n)
		}
	}

	return list
}

// cloudInit is what PVE writes on the drive. A card without ipconfig is left alone, as there.
func (c Config) cloudInit(name string) *CloudInit {
	ci := &CloudInit{Hostname: name, DNS: addresses(c["nameserver"]), Search: c.List("searchdomain")}

	ci.User, ci.Password, ci.Upgrade = c["ciuser"], c["cipassword"], c["ciupgrade"] != "0"
	if keys, err := url.PathUnescape(c["sshkeys"]); err == nil && keys != "" {
		ci.Keys = strings.FieldsFunc(keys, func(r rune) bool { return r == '\n' })
	}

	for _, k := range []string{"ciuser", "cipassword", "sshkeys", "cicustom"} {
		ci.UserData = ci.UserData || c[k] != ""
	}

	for _, n := range c.nics() {
		p := ParseProperties(c["ipconfig"+strings.TrimPrefix(n.Name, "net")], "")
		nic := CloudInitInterface{MAC: n.MAC, DHCP: p.Get("ip") == "dhcp"}

		if a, err := netip.ParsePrefix(p.Get("ip")); err == nil {
			nic.Address = a
		}

		if g, err := netip.ParseAddr(p.Get("gw")); err == nil {
			nic.Gateway = g
		}

		ci.Interfaces = append(ci.Interfaces, nic)
	}

	return ci
}

func addresses(s string) []netip.Addr {
	var list []netip.Addr

	for _, f := range schema.SplitList(s) {
		if a, err := netip.ParseAddr(f); err == nil {
			list = append(list, a)
		}
	}

	return list
}

// hashed is a password that is a hash already, as qemu-server recognises one.
var hashed = regexp.MustCompile(`^\$(?:[156]|2[ay])(\$.+){2}`)

// hashPassword keeps no password but its hash, as Proxmox does for systems other than Windows.
func (c Config) hashPassword() {
	if password, set := c["cipassword"]; set && !hashed.MatchString(password) {
		c["cipassword"] = fmt.Sprintf("$5$lab$%x", sha256.Sum256([]byte(password)))
	}
}
