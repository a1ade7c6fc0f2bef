package proxmoxve

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// options builds one of Proxmox' property strings.
type options []string

func (o *options) add(name, value string) { *o = append(*o, name+"="+value) }

// some adds a value that is set.
func (o *options) some(name, value string) {
	if value != "" {
		o.add(name, value)
	}
}

func (o *options) flag(name string, value bool) { o.add(name, bit(value)) }

func (o *options) positive(name string, value int) {
	if value > 0 {
		o.add(name, strconv.Itoa(value))
	}
}

func (o options) String() string { return strings.Join(o, ",") }

func bit(v bool) string {
	if v {
		return "1"
	}

	return "0"
}

// encodeAgent always sends all three, on and off alike.
func encodeAgent(agent object) string {
	return fieldsOf("agent").encoded(agent, "enabled", "trim", "type").String()
}

// encodeCPU adds what a cpu block says.
func encodeCPU(f form, cpu object) {
	f["cpu"] = "cputype=" + str(cpu, "type")
	f.add(fieldsOf("cpu").encoded(cpu, "cores", "sockets", "units", "numa", "hotplugged", "limit"))
}

// add takes over single options as keys of the configuration.
func (f form) add(o options) {
	for _, option := range o {
		name, value, _ := strings.Cut(option, "=")
		f[name] = value
	}
}

// some adds what is set: an empty value would be a refusal.
func (f form) some(name, value string) {
	if value != "" {
		f[name] = value
	}
}

// encodeMemory sends balloon=0, no ballooning, for an unstated floating memory.
func encodeMemory(f form, memory object, vmid int) {
	f["memory"] = strconv.Itoa(num(memory, "dedicated"))
	f["balloon"] = strconv.Itoa(num(memory, "floating"))

	if shared := num(memory, "shared"); shared > 0 {
		f["ivshmem"] = fmt.Sprintf("size=%d,name=vm-%d-ivshmem", shared, vmid)
	}
}

// encodeNetwork adds the cards and returns the names of those that must not be there.
func encodeNetwork(f form, devices []object) []string {
	const cards = 32

	var absent []string

	card := fieldsOf("networkDevices")

	for i, d := range devices {
		name := fmt.Sprintf("net%d", i)
		if !flag(d, "enabled") {
			absent = append(absent, name)

			continue
		}

		o := card.encoded(d, "model", "bridge", "firewall", "macAddress", "vlanId", "mtu")
		if flag(d, "disconnected") {
			o.add("link_down", "1")
		}

		f[name] = o.String()
	}

	return append(absent, numbered("net", len(devices), cards)...)
}

// numbered names the devices from index from on.
func numbered(prefix string, from, limit int) []string {
	var out []string
	for i := from; i < limit; i++ {
		out = append(out, fmt.Sprintf("%s%d", prefix, i))
	}

	return out
}

// diskOptions are the options of a disk that an update may change, as far as its bus has them.
func diskOptions(d object) options {
	names := []string{"aio", "backup", "discard", "cache", "replicate"}
	iface := str(d, "interface")

	if !strings.HasPrefix(iface, "sata") && !strings.HasPrefix(iface, "ide") {
		names = append(names, "iothread")
	}

	if !strings.HasPrefix(iface, "virtio") {
		names = append(names, "ssd")
	}

	return diskTable().encoded(d, names...)
}

// encodeNewDisk is a disk that Proxmox allocates; a format that is not set is sent as qcow2, which block storages
// refuse.
func encodeNewDisk(d object) string {
	format := str(d, "fileFormat")
	if format == "" {
		format = "qcow2"
	}

	volume := fmt.Sprintf("%s:%d", str(d, "datastoreId"), num(d, "size"))
	if path := str(d, "pathInDatastore"); path != "" {
		volume = strings.TrimPrefix(str(d, "datastoreId")+":"+path, ":")
	}

	o := options{"file=" + volume, "format=" + format, fmt.Sprintf("size=%d", num(d, "size")<<30)}

	return append(o, diskOptions(d)...).String()
}

// encodeMedia is a CD-ROM or cloud-init drive; the trailing comma is the published provider's, and Proxmox takes it.
func encodeMedia(volume string) string { return "file=" + volume + ",media=cdrom," }

// encodeEFI asks for a new volume; the 1 is a size that Proxmox ignores.
func encodeEFI(efi object, format string) string {
	o := options{"file=" + str(efi, "datastoreId") + ":1", "format=" + format, "efitype=" + str(efi, "type")}
	o.flag("pre-enrolled-keys", flag(efi, "preEnrolledKeys"))

	return o.String()
}

// encodePCI always sends rombar: unset is 0, unlike Proxmox' own default.
func encodePCI(f form, devices []object) error {
	card := fieldsOf("hostpcis")

	for _, d := range devices {
		o := card.encoded(d, "id", "mapping")
		if len(o) == 0 {
			return fmt.Errorf(
				"failed to encode PCI device %s: either device ID or resource mapping must be set", str(d, "device"),
			)
		}

		o = append(o, card.encoded(d, "pcie", "rombar", "xvga")...)
		f[str(d, "device")] = o.String()
	}

	return nil
}

// encodeStartup leaves out what is -1.
func encodeStartup(startup object) string {
	var o options

	for _, name := range []string{"order", "upDelay", "downDelay"} {
		if v := num(startup, name); v >= 0 {
			o.add(fieldsOf("startup")[name].key, strconv.Itoa(v))
		}
	}

	return o.String()
}

func encodeVGA(vga object) string { return fieldsOf("vga").encoded(vga, "memory", "type").String() }

// encodeTags sorts, so that the order in the program makes no difference.
func encodeTags(tags []string) string {
	var out []string

	for _, tag := range tags {
		if tag = strings.TrimSpace(tag); tag != "" {
			out = append(out, tag)
		}
	}

	slices.Sort(out)

	return strings.Join(out, ";")
}

// encodeCloudInit adds what cloud-init is to know.
func encodeCloudInit(f form, initialization object) {
	if dns := child(initialization, "dns"); dns != nil {
		f.some("searchdomain", str(dns, "domain"))

		f.some("nameserver", strings.Join(words(dns, "servers"), " "))
	}

	for i, c := range children(initialization, "ipConfigs") {
		var o options

		o.some("gw", str(child(c, "ipv4"), "gateway"))
		o.some("ip", str(child(c, "ipv4"), "address"))
		f.some(fmt.Sprintf("ipconfig%d", i), o.String())
	}

	if account := child(initialization, "userAccount"); account != nil {
		if keys := words(account, "keys"); len(keys) > 0 {
			f["sshkeys"] = strings.ReplaceAll(url.QueryEscape(strings.Join(keys, "\n")), "+", "%20")
		}

		f.some("cipassword", str(account, "password"))
		f["ciuser"] = str(account, "username")
	}
}
