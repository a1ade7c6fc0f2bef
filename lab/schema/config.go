package schema

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// config are the keys of a VM's configuration that can be set; [n] stands for an index.
var config = mustParse(map[string]string{
	"acpi allow-ksm autostart ciupgrade freeze keephugepages kvm localtime numa onboot protection reboot tablet tdf template": "bool",
	"affinity":                            "@pve-cpuset",
	"agent":                               "{agent}",
	"amd-sev":                             "@pve-qemu-sev-fmt",
	"arch":                                "=x86_64,aarch64",
	"args cipassword ciuser searchdomain": "string",
	"audio0":                              "{audio}",
	"balloon migrate_speed":               "int 0..",
	"bios":                                "=seabios,ovmf",
	"boot":                                "@pve-qm-boot",
	"bootdisk":                            `@pve-qm-bootdisk ~(ide|sata|scsi|virtio)\d+`,
	"cdrom":                               "@pve-qm-ide",
	"cicustom":                            "@pve-qm-cicustom",
	"citype":                              "=configdrive2,nocloud,opennebula",
	"cores smp sockets vcpus":             "int 1..",
	"cpu":                                 "@pve-vm-cpu-conf",
	"cpulimit":                            "number 0..128",
	"cpuunits":                            "int 1..262144",
	"description":                         "<=8192",
	"efidisk0":                            "{efidisk}",
	"hookscript":                          "@pve-volume-id",
	"hostpci[n]":                          "@pve-qm-hostpci",
	"hotplug":                             "@pve-hotplug-features",
	"hugepages":                           "=any,2,1024",
	"ide[n]":                              "{ide}",
	"intel-tdx":                           "@pve-qemu-tdx-fmt",
	"ipconfig[n]":                         "@pve-qm-ipconfig",
	"ivshmem":                             "{ivshmem}",
	"keyboard":                            "=de,de-ch,da,en-gb,en-us,es,fi,fr,fr-be,fr-ca,fr-ch,hu,is,it,ja,lt,mk,nl,no,pl,pt,pt-br,sv,sl,tr",
	"lock":                                "=backup,clone,create,migrate,rollback,snapshot,snapshot-delete,suspending,suspended",
	"machine":                             "{machine}",
	"memory":                              "{memory}",
	"migrate_downtime":                    "number 0..",
	"name":                                "@dns-name",
	"nameserver":                          "@address-list",
	"net[n]":                              "{net}",
	"numa[n]":                             "{numa}",
	"ostype":                              "=other,wxp,w2k,w2k3,w2k8,wvista,win7,win8,win10,win11,l24,l26,solaris",
	"parallel[n]":                         `~/dev/parport\d+|/dev/usb/lp\d+`,
	"rng0":                                "@pve-qm-rng",
	"sata[n]":                             "{sata}",
	"scsi[n]":                             "{scsi}",
	"scsihw":                              "=lsi,lsi53c810,virtio-scsi-pci,virtio-scsi-single,megasas,pvscsi",
	"serial[n]":                           "~(/dev/.+|socket)",
	"shares":                              "int 0..50000",
	"smbios1":                             "<=512 @pve-qm-smbios1",
	"spice_enhancements":                  "{spice}",
	"sshkeys":                             "@urlencoded",
	"startdate":                           `~(now|\d{4}-\d{1,2}-\d{1,2}(T\d{1,2}:\d{1,2}:\d{1,2})?)`,
	"startup":                             "@pve-startup-order",
	"tags":                                "@pve-tag-list",
	"tpmstate0":                           "{tpmstate}",
	"unused[n]":                           "{unused}",
	"usb[n]":                              "{usb}",
	"vga":                                 "{vga}",
	"virtio[n]":                           "{virtio}",
	"virtiofs[n]":                         "{virtiofs}",
	"vmgenid":                             "~(?:[a-fA-F0-9]{8}(?:-[a-fA-F0-9]{4}){3}-[a-fA-F0-9]{12}|[01])",
	"vmstatestorage":                      "@pve-storage-id",
	"watchdog":                            "@pve-qm-watchdog",
})

// highest are the greatest indices of the keys with one; the description of the API does not say them.
var highest = map[string]int{
	"hostpci":  15,
	"ide":      3,
	"ipconfig": 31,
	"net":      31,
	"numa":     7,
	"parallel": 2,
	"sata":     5,
	"scsi":     30,
	"serial":   3,
	"unused":   255,
	"usb":      13,
	"virtio":   15,
	"virtiofs": 9,
}

// Config returns the rule of a key of a VM's configuration, such as cores or scsi0.
func Config(key string) (Rule, bool) {
	if r, ok := config[key]; ok && !strings.HasSuffix(key, "[n]") {
		return r, true
	}

	name := strings.TrimRight(key, "0123456789")
	for n, last := 0, highest[name]; n <= last; n++ {
		if key == name+strconv.Itoa(n) {
			r, ok := config[name+"[n]"]

			return r, ok
		}
	}

	return Rule{}, false
}

// ConfigKeys returns the keys of a VM's configuration as the API's description writes them, scsi[n] standing for all of
// scsi0, scsi1, …
func ConfigKeys() map[string]Rule { return maps.Clone(config) }

// Properties returns the parts of the property string that a rule's format names; nil if it names none.
func Properties(format string) map[string]Rule { return maps.Clone(properties[format]) }

// Formats returns the names of the single-value formats that are checked.
func Formats() []string {
	return slices.Sorted(maps.Keys(formats))
}
