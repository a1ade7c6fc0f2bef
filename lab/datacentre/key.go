package datacentre

import (
	"regexp"
	"strconv"
	"strings"
)

// KeyType is the JSON type of a configuration key.
type KeyType int

// The types of configuration keys.
const (
	KeyUnknown KeyType = iota
	KeyString
	KeyBool
	KeyInt
	KeyNumber
)

var plainKeys = map[KeyType]string{
	KeyBool: "acpi allow-ksm autostart ciupgrade freeze keephugepages kvm localtime numa onboot protection reboot tablet tdf template",
	KeyInt:  "balloon cores cpuunits migrate_speed shares smp sockets vcpus",
	KeyString: "affinity agent amd-sev arch args bios boot bootdisk cdrom cicustom cipassword citype ciuser cpu description hookscript hotplug hugepages " +
		"intel-tdx ivshmem keyboard lock machine memory meta name nameserver ostype rng0 scsihw searchdomain smbios1 spice_enhancements sshkeys startdate " +
		"startup tags vga vmgenid vmstatestorage watchdog",
	KeyNumber: "cpulimit migrate_downtime",
}

// numberedKeys are those with an index, with the highest one.
var numberedKeys = map[string]int{
	"audio": 0, "efidisk": 0, "hostpci": 15, "ide": 3, "ipconfig": 31, "net": 31, "numa": 7, "parallel": 2, "sata": 5, "scsi": 30, "serial": 3, "tpmstate": 0,
	"unused": 255, "usb": 13, "virtio": 15, "virtiofs": 9,
}

var (
	keyTypes   = indexKeys()
	indexedKey = regexp.MustCompile(`^([a-z]+)(\d+)$`)
	driveKey   = regexp.MustCompile(`^(ide|sata|scsi|virtio|efidisk|tpmstate|unused)\d+$`)
	dnsName    = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?(\.[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?)*$`)
	enums      = map[string]string{
		"bios": "seabios ovmf", "scsihw": "lsi lsi53c810 virtio-scsi-pci virtio-scsi-single megasas pvscsi", "citype": "configdrive2 nocloud opennebula",
		"ostype": "other wxp w2k w2k3 w2k8 wvista win7 win8 win10 win11 l24 l26 solaris", "arch": "x86_64 aarch64", "hugepages": "any 2 1024",
	}
)

func indexKeys() map[string]KeyType {
	m := map[string]KeyType{}

	for t, names := range plainKeys {
		for n := range strings.FieldsSeq(names) {
			m[n] = t
		}
	}

	return m
}

// TypeOf returns the type of a configuration key, KeyUnknown if VMs have none of that name.
func TypeOf(key string) KeyType {
	if t, ok := keyTypes[key]; ok {
		return t
	}

	m := indexedKey.FindStringSubmatch(key)
	if m == nil {
		return KeyUnknown
	}

	n, err := strconv.Atoi(m[2])
	if highest, ok := numberedKeys[m[1]]; err != nil || !ok || n > highest || strconv.Itoa(n) != m[2] {
		return KeyUnknown
	}

	return KeyString
}

// IsDrive says whether a configuration key is a disk or CD-ROM: scsi0, ide2, efidisk0, unused0, …
func IsDrive(key string) bool { return driveKey.MatchString(key) && TypeOf(key) == KeyString }

// check complains about values PVE does not take; it returns the configuration with booleans as 1 and 0.
func (c Config) check() (Config, error) {
	out := Config{}
	wrong := map[string]string{}

	for k, v := range c {
		value, complaint := checkValue(k, v)
		if complaint != "" {
			wrong[k] = complaint
		}

		out[k] = value
	}

	if len(wrong) > 0 {
		return nil, ParameterError(wrong)
	}

	return out, nil
}

func checkValue(key, value string) (checked, complaint string) {
	switch TypeOf(key) {
	case KeyUnknown:
		return "", "property is not defined in schema and the schema does not allow additional properties"
	case KeyBool:
		switch strings.ToLower(value) {
		case "1", "on", "yes", "true":
			return "1", ""
		case "0", "off", "no", "false":
			return "0", ""
		default:
			return "", "type check ('boolean') failed - got '" + value + "'"
		}
	case KeyInt:
		n, err := strconv.Atoi(value)
		if err != nil {
			return "", "type check ('integer') failed - got '" + value + "'"
		}

		if lowest := 1; n < lowest && key != "balloon" && key != "shares" && key != "migrate_speed" {
			return "", "value must have a minimum value of " + strconv.Itoa(lowest)
		}
	case KeyNumber:
		if _, err := strconv.ParseFloat(value, 64); err != nil {
			return "", "type check ('number') failed - got '" + value + "'"
		}
	case KeyString:
		return value, checkString(key, value)
	}

	return value, ""
}

func checkString(key, value string) string {
	switch {
	case key == "name" && !dnsName.MatchString(value):
		return "invalid format - value does not look like a valid DNS name"
	case key == "memory":
		if n, err := strconv.Atoi(ParseProperties(value, "current").Get("current")); err != nil || n < 16 {
			return "invalid format - format error\ncurrent: value must have a minimum value of 16"
		}
	case enums[key] != "" && !strings.Contains(" "+enums[key]+" ", " "+value+" "):
		return "value '" + value + "' does not have a value in the enumeration '" + strings.ReplaceAll(enums[key], " ", ", ") + "'"
	}

	return ""
}
