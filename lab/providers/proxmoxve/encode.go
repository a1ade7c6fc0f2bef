package proxmoxve

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// speedKeys are the limits of a disk, in the order in which they are sent.
var speedKeys = []struct{ property, pve string }{
	{"iopsRead", "iops_rd"},
	{"iopsWrite", "iops_wr"},
	{"iopsReadBurstable", "iops_rd_max"},
	{"iopsWriteBurstable", "iops_wr_max"},
	{"readBurstable", "mbps_rd_max"},
	{"writeBurstable", "mbps_wr_max"},
	{"read", "mbps_rd"},
	{"write", "mbps_wr"},
}

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
	var o options

	o.flag("enabled", flag(agent, "enabled"))
	o.flag("fstrim_cloned_disks", flag(agent, "trim"))
	o.add("type", str(agent, "type"))

	return o.String()
}

// encodeCPU adds what a cpu block says.
func encodeCPU(f form, cpu object) {
	o := options{"cputype=" + str(cpu, "type")}
	if flags := words(cpu, "flags"); len(flags) > 0 {
		o.add("flags", strings.Join(flags, ";"))
	}

	f["cpu"] = o.String()
	f["cores"] = strconv.Itoa(num(cpu, "cores"))
	f["sockets"] = strconv.Itoa(num(cpu, "sockets"))
	f["cpuunits"] = strconv.Itoa(num(cpu, "units"))
	f["numa"] = bit(flag(cpu, "numa"))

	f.positive("vcpus", num(cpu, "hotplugged"))
	f.positive("cpulimit", num(cpu, "limit"))
}

func (f form) positive(name string, value int) {
	if value > 0 {
		f[name] = strconv.Itoa(value)
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

	for i, d := range devices {
		name := fmt.Sprintf("net%d", i)
		if !flag(d, "enabled") {
			absent = append(absent, name)

			continue
		}

		o := options{"model=" + str(d, "model")}
		o.some("bridge", str(d, "bridge"))
		o.flag("firewall", flag(d, "firewall"))

		if flag(d, "disconnected") {
			o.add("link_down", "1")
		}

		o.some("macaddr", str(d, "macAddress"))
		o.positive("queues", num(d, "queues"))

		if rate, _ := d["rateLimit"].(float64); rate != 0 {
			o.add("rate", fmt.Sprintf("%f", rate))
		}

		o.positive("tag", num(d, "vlanId"))
		o.positive("mtu", num(d, "mtu"))
		o.some("trunks", str(d, "trunks"))
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

// diskOptions are the options of a disk that an update may change.
func diskOptions(d object) options {
	var o options

	iface := str(d, "interface")

	o.some("aio", str(d, "aio"))
	o.flag("backup", flag(d, "backup"))

	speed := child(d, "speed")
	for _, key := range speedKeys[:4] {
		o.positive(key.pve, num(speed, key.property))
	}

	if !strings.HasPrefix(iface, "sata") && !strings.HasPrefix(iface, "ide") {
		o.flag("iothread", flag(d, "iothread"))
	}

	o.some("serial", str(d, "serial"))

	if !strings.HasPrefix(iface, "virtio") {
		o.flag("ssd", flag(d, "ssd"))
	}

	o.some("discard", str(d, "discard"))
	o.some("cache", str(d, "cache"))

	for _, key := range speedKeys[4:] {
		o.positive(key.pve, num(speed, key.property))
	}

	o.flag("replicate", flag(d, "replicate"))

	return o
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

func encodeTPM(tpm object) string {
	return fmt.Sprintf("file=%s:1,version=%s", str(tpm, "datastoreId"), str(tpm, "version"))
}

// encodePCI always sends rombar: unset is 0, unlike Proxmox' own default.
func encodePCI(f form, devices []object) error {
	for _, d := range devices {
		var o options

		o.some("host", str(d, "id"))
		o.some("mapping", str(d, "mapping"))

		if len(o) == 0 {
			return fmt.Errorf(
				"failed to encode PCI device %s: either device ID or resource mapping must be set", str(d, "device"),
			)
		}

		o.some("mdev", str(d, "mdev"))
		o.flag("pcie", flag(d, "pcie"))
		o.flag("rombar", flag(d, "rombar"))
		o.some("romfile", str(d, "romFile"))
		o.flag("x-vga", flag(d, "xvga"))
		f[str(d, "device")] = o.String()
	}

	return nil
}

func encodeNUMA(f form, devices []object) {
	for _, d := range devices {
		o := options{"cpus=" + str(d, "cpus")}
		o.some("hostnodes", str(d, "hostnodes"))
		o.add("memory", strconv.Itoa(num(d, "memory")))
		o.some("policy", str(d, "policy"))
		f[str(d, "device")] = o.String()
	}
}

// encodeSMBIOS forgets the SKU, as published, and gives a new id where none is set.
func encodeSMBIOS(smbios object) string {
	o := options{"base64=1"}

	for _, name := range []string{"family", "manufacturer", "product", "serial", "version"} {
		if v := str(smbios, name); v != "" {
			o.add(name, base64.StdEncoding.EncodeToString([]byte(v)))
		}
	}

	id := str(smbios, "uuid")
	if id == "" {
		id = uuid.NewString()
	}

	o.add("uuid", id)

	return o.String()
}

// encodeStartup leaves out what is -1.
func encodeStartup(startup object) string {
	var o options

	for _, key := range []struct{ property, pve string }{{"order", "order"}, {"upDelay", "up"}, {"downDelay", "down"}} {
		if v := num(startup, key.property); v >= 0 {
			o.add(key.pve, strconv.Itoa(v))
		}
	}

	return o.String()
}

func encodeVGA(vga object) string {
	var o options

	o.some("clipboard", str(vga, "clipboard"))
	o.positive("memory", num(vga, "memory"))
	o.some("type", str(vga, "type"))

	return o.String()
}

func encodeWatchdog(watchdog object) string {
	return fmt.Sprintf("model=%s,action=%s", str(watchdog, "model"), str(watchdog, "action"))
}

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

		servers := strings.Join(words(dns, "servers"), " ")
		if servers == "" {
			servers = str(dns, "server")
		}

		f.some("nameserver", servers)
	}

	for i, c := range children(initialization, "ipConfigs") {
		var o options

		o.some("gw", str(child(c, "ipv4"), "gateway"))
		o.some("gw6", str(child(c, "ipv6"), "gateway"))
		o.some("ip", str(child(c, "ipv4"), "address"))
		o.some("ip6", str(child(c, "ipv6"), "address"))
		f.some(fmt.Sprintf("ipconfig%d", i), o.String())
	}

	if account := child(initialization, "userAccount"); account != nil {
		if keys := words(account, "keys"); len(keys) > 0 {
			f["sshkeys"] = strings.ReplaceAll(url.QueryEscape(strings.Join(keys, "\n")), "+", "%20")
		}

		f.some("cipassword", str(account, "password"))
		f["ciuser"] = str(account, "username")
	}

	var files options
	for _, key := range cloudInitFiles {
		files.some(key.pve, str(initialization, key.property))
	}

	f.some("cicustom", files.String())
	f.some("citype", str(initialization, "type"))
}

var cloudInitFiles = []struct{ property, pve string }{
	{"metaDataFileId", "meta"},
	{"networkDataFileId", "network"},
	{"userDataFileId", "user"},
	{"vendorDataFileId", "vendor"},
}
