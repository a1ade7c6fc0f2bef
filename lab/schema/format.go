package schema

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// formats are the formats of single values: each returns PVE's complaint, or nothing. A format with "-list" behind its
// name is a list of such values.
var formats = map[string]func(string) string{
	"CIDR":      cidr(8, 128, "value does not look like a valid CIDR network"),
	"address":   address,
	"disk-size": like(`\d+(\.\d+)?[KMGT]?`, "value does not look like a valid disk size: %"),
	"dns-name":  like(dnsName, "value does not look like a valid DNS name"),
	"email":     like(emailAddress, "value does not look like a valid email address"),
	"ipv4":      ip(4, "value does not look like a valid IPv4 address"),
	"ipv6":      ip(6, "value does not look like a valid IPv6 address"),
	"mac-addr": like(
		`(?i)[a-f0-9][02468ace](?::[a-f0-9]{2}){5}`, "value does not look like a valid unicast MAC address",
	),
	"pve-bridge-id": like(`[-_.\w]+`, "invalid bridge ID '%'"),
	"pve-configid":  like(`(?i)[a-z][a-z0-9_-]+`, "invalid configuration ID '%'"),
	"pve-cpuset":    like(`\d+(-\d+)?(,\d+(-\d+)?)*`, "value does not look like a valid CPU set: %"),
	"pve-groupid":   like(`[A-Za-z0-9._-]+`, "group name '%' contains invalid characters"),
	"pve-hotplug-features": like(
		`0|1|((network|disk|cpu|memory|usb|cloudinit)([,;\s]+|$))*`, "unable to parse hotplug option",
	),
	"pve-ipv4-config": addressConfig(
		`dhcp|manual`, 32, "value does not look like a valid ipv4 network configuration",
	),
	"pve-ipv6-config": addressConfig(
		`auto|dhcp|manual`, 128, "value does not look like a valid ipv6 network configuration",
	),
	"pve-node":        like(`[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?`, "value does not look like a valid node name"),
	"pve-poolid":      like(`[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+){0,2}`, "pool name '%' contains invalid characters"),
	"pve-priv":        like(`[A-Za-z.]+`, "invalid privilege '%'"),
	"pve-qm-bootdev":  like(`(ide|sata|scsi|virtio|net|usb|hostpci)\d+`, "invalid boot device '%'"),
	"pve-qm-bootdisk": like(`(ide|sata|scsi|virtio)\d+`, "invalid boot disk '%'"),
	"pve-realm":       like(realm, "value does not look like a valid realm"),
	"pve-roleid":      like(`[A-Za-z0-9._-]+`, "role name '%' contains invalid characters"),
	"pve-startup-order": like(
		`((order=)?\d+|up=\d+|down=\d+|\s*)(,((order=)?\d+|up=\d+|down=\d+|\s*))*`, "unable to parse startup options",
	),
	"pve-storage-content":  like(`images|rootdir|vztmpl|iso|backup|snippets|import|none`, "invalid content type '%'"),
	"pve-storage-id":       like(storageID, "storage ID '%' contains illegal characters"),
	"pve-tag":              like(`(?i)[a-z0-9_][a-z0-9_\-+.]*`, "invalid characters in tag"),
	"pve-task-status-type": like(`(?i)ok|error|warning|unknown`, "invalid status '%'"),
	"pve-tokenid":          like(userID+"!"+realm, "value '%' does not look like a valid token ID"),
	"pve-userid":           like(userID, "value '%' does not look like a valid user name"),
	"pve-vmid":             like(`[1-9][0-9]{2,8}`, "value does not look like a valid VM ID"),
	"pve-volume-id":        like(volumeID, "unable to parse volume ID '%'"),
	"storage-pair":         like(`1|`+storageID+`(:`+storageID+`)?`, "entry '%' contains invalid ID"),
	"string":               func(string) string { return "" },
	"urlencoded":           like(`[-%a-zA-Z0-9_.!~*'()]*`, "invalid urlencoded string: %"),

	"pve-volume-id-or-absolute-path": like(`/.*|`+volumeID, "unable to parse volume ID '%'"),
	"pve-volume-id-or-qm-path":       like(`none|cdrom|/.*|`+volumeID, "unable to parse volume ID '%'"),
}

// cpuFormat is that of a VM's processor, whose models PVE knows by name.
const cpuFormat = "pve-vm-cpu-conf"

// cpuModels are those of PVE and of QEMU.
var cpuModels = strings.Fields(`
	486 a64fx athlon Broadwell Broadwell-IBRS Broadwell-noTSX Broadwell-noTSX-IBRS Cascadelake-Server
	Cascadelake-Server-noTSX Cascadelake-Server-v2 Cascadelake-Server-v4 Cascadelake-Server-v5 ClearwaterForest
	Conroe Cooperlake Cooperlake-v2 core2duo coreduo cortex-a35 cortex-a53 cortex-a55 cortex-a57 cortex-a710
	cortex-a72 cortex-a76 EPYC EPYC-Genoa EPYC-Genoa-v2 EPYC-IBPB EPYC-Milan EPYC-Milan-v2 EPYC-Milan-v3 EPYC-Rome
	EPYC-Rome-v2 EPYC-Rome-v3 EPYC-Rome-v4 EPYC-Rome-v5 EPYC-Turin EPYC-v3 EPYC-v4 EPYC-v5 GraniteRapids
	GraniteRapids-v2 GraniteRapids-v3 Haswell Haswell-IBRS Haswell-noTSX Haswell-noTSX-IBRS host Icelake-Client
	Icelake-Client-noTSX Icelake-Server Icelake-Server-noTSX Icelake-Server-v3 Icelake-Server-v4 Icelake-Server-v5
	Icelake-Server-v6 Icelake-Server-v7 IvyBridge IvyBridge-IBRS KnightsMill kvm32 kvm64 max Nehalem Nehalem-IBRS
	neoverse-n1 neoverse-n2 neoverse-v1 Opteron_G1 Opteron_G2 Opteron_G3 Opteron_G4 Opteron_G5 Penryn pentium
	pentium2 pentium3 phenom qemu32 qemu64 SandyBridge SandyBridge-IBRS SapphireRapids SapphireRapids-v2
	SapphireRapids-v3 SapphireRapids-v4 SierraForest SierraForest-v2 SierraForest-v3 Skylake-Client
	Skylake-Client-IBRS Skylake-Client-noTSX-IBRS Skylake-Client-v4 Skylake-Server Skylake-Server-IBRS
	Skylake-Server-noTSX-IBRS Skylake-Server-v4 Skylake-Server-v5 Westmere Westmere-IBRS x86-64-v2 x86-64-v2-AES
	x86-64-v3 x86-64-v4
`)

// checkModel complains about a processor that PVE does not know; the lab has no models of its own.
func checkModel(value string) string {
	found, _ := splitProperties(properties[cpuFormat], value)
	model := found["cputype"]

	custom, isCustom := strings.CutPrefix(model, "custom-")

	switch {
	case isCustom:
		return "Custom cputype '" + custom + "' not found\n"
	case model != "" && !slices.Contains(cpuModels, model):
		return "Built-in cputype '" + model + "' is not defined (missing 'custom-' prefix?)\n"
	default:
		return ""
	}
}

const (
	dnsName   = `([a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?\.)*[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?`
	storageID = `[a-zA-Z][a-zA-Z0-9\-_.]*[a-zA-Z0-9]`
	volumeID  = storageID + `:.+`
	realm     = `[A-Za-z][A-Za-z0-9.\-_]+`
	userID    = `[^\s:/]+@` + realm

	emailAddress = `[\w+\-~]+(\.[\w+\-~]+)*@[a-zA-Z0-9-]+(\.[a-zA-Z0-9-]+)*`
)

// like complains about values that do not match the pattern as a whole; the value takes the place of the complaint's
// "%".
func like(pattern, complaint string) func(string) string {
	re := regexp.MustCompile("^(?:" + pattern + ")$")

	return func(value string) string {
		if re.MatchString(value) {
			return ""
		}

		return strings.ReplaceAll(complaint, "%", value)
	}
}

func ip(family int, complaint string) func(string) string {
	return func(value string) string {
		if a, err := netip.ParseAddr(value); err != nil || a.Is4() != (family == 4) || a.Zone() != "" {
			return complaint
		}

		return ""
	}
}

func cidr(shortest, longest int, complaint string) func(string) string {
	return func(value string) string {
		if p, err := netip.ParsePrefix(value); err != nil || p.Bits() < shortest || p.Bits() > longest {
			return complaint
		}

		return ""
	}
}

func addressConfig(words string, bits int, complaint string) func(string) string {
	word := like(words, complaint)

	return func(value string) string {
		p, err := netip.ParsePrefix(value)
		if err == nil && p.Addr().BitLen() == bits && p.Bits() >= 8 {
			return ""
		}

		return word(value)
	}
}

func address(value string) string {
	if _, err := netip.ParseAddr(value); err == nil {
		return ""
	}

	return like(dnsName, "value does not look like a valid address: %")(value)
}
