package proxmoxve

import (
	"encoding/base64"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	driveName = regexp.MustCompile(`^(ide|sata|scsi|virtio)\d+$`)
	sizeText  = regexp.MustCompile(`(?i)^(\d+(?:\.\d+)?)([KMGT]?)(?:i?b)?$`)
)

func isDrive(name string) bool { return driveName.MatchString(name) }

// parseOptions takes one of Proxmox' property strings apart; a part without a name gets that of the default option.
func parseOptions(text, bare string) map[string]string {
	out := map[string]string{}

	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}

		if name, value, ok := strings.Cut(part, "="); ok {
			out[name] = value
		} else {
			out[bare] = part
		}
	}

	return out
}

// parseSize reads a size such as 40G into bytes; none is 0.
func parseSize(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}

	parts := sizeText.FindStringSubmatch(text)
	if parts == nil {
		return 0, fmt.Errorf("cannot parse disk size %q: correct it in the VM's configuration", text)
	}

	value, err := strconv.ParseFloat(parts[1], 64)
	if err != nil {
		return 0, fmt.Errorf("cannot parse disk size %q: %w", text, err)
	}

	unit := map[string]float64{"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}[strings.ToUpper(parts[2])]

	return int64(math.Ceil(value * unit)), nil
}

func isTrue(text string) bool { return text == "1" }

// orElse returns the value of an option, or what its absence means.
func orElse(o map[string]string, name, absent string) string {
	if v, ok := o[name]; ok {
		return v
	}

	return absent
}

// whole reads an integer; Proxmox writes some of them as 1.0 or with spaces, and what is none counts as 0, like an
// absent value.
func whole(text string) float64 {
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil {
		return 0
	}

	return math.Trunc(n)
}

// decodeAgent keeps the timeout, which is the provider's own and not in Proxmox.
func decodeAgent(text, timeout string) object {
	o := parseOptions(text, "enabled")

	if timeout == "" {
		timeout = "15m"
	}

	return object{
		"enabled": isTrue(o["enabled"]), "trim": isTrue(o["fstrim_cloned_disks"]), "timeout": timeout, "type": o["type"],
	}
}

// decodeCPU states Proxmox' own defaults for what the configuration leaves out.
func decodeCPU(config map[string]string) object {
	o := parseOptions(orElse(config, "cpu", "qemu64"), "cputype")

	flags := []any{}
	if o["flags"] != "" {
		flags = toList(strings.Split(o["flags"], ";"))
	}

	return object{
		"cores":      whole(orElse(config, "cores", "1")),
		"hotplugged": whole(orElse(config, "vcpus", "0")),
		"limit":      whole(orElse(config, "cpulimit", "0")),
		"numa":       isTrue(config["numa"]),
		"sockets":    whole(orElse(config, "sockets", "1")),
		"flags":      flags,
		"type":       o["cputype"],
		"units":      whole(orElse(config, "cpuunits", "1024")), "affinity": config["affinity"],
	}
}

// decodeMemory takes an absent balloon for 0, as published; in Proxmox it would be the whole memory.
func decodeMemory(config map[string]string) object {
	return object{
		"dedicated": whole(config["memory"]),
		"floating":  whole(config["balloon"]),
		"shared":    whole(parseOptions(config["ivshmem"], "size")["size"]),
		"hugepages": config["hugepages"], "keepHugepages": isTrue(config["keephugepages"]),
	}
}

// decodeNetwork returns the cards up to the last one, and their addresses.
func decodeNetwork(config map[string]string) ([]any, []string) {
	devices := []any{}

	var addresses []string

	last := -1

	for i := range 32 {
		if _, ok := config[fmt.Sprintf("net%d", i)]; ok {
			last = i
		}
	}

	for i := range last + 1 {
		text, ok := config[fmt.Sprintf("net%d", i)]
		if !ok {
			devices = append(devices, object{"enabled": false})
			addresses = append(addresses, "")

			continue
		}

		device, address := decodeCard(text)
		devices = append(devices, device)
		addresses = append(addresses, address)
	}

	return devices, addresses
}

// decodeCard reads both ways of writing a card, virtio=<address> and model=virtio,macaddr=<address>.
func decodeCard(text string) (object, string) {
	o := parseOptions(text, "")
	model, address := o["model"], o["macaddr"]

	// Proxmox writes a card as virtio=<address>.
	for _, known := range []string{"e1000", "e1000e", "rtl8139", "virtio", "vmxnet3"} {
		if v, ok := o[known]; ok {
			model, address = known, v
		}
	}

	rate, err := strconv.ParseFloat(orElse(o, "rate", "0"), 64)
	if err != nil {
		rate = 0
	}

	return object{
		"bridge":       o["bridge"],
		"enabled":      true,
		"disconnected": isTrue(o["link_down"]),
		"firewall":     isTrue(o["firewall"]),
		"macAddress":   address,
		"model":        model,
		"queues":       whole(o["queues"]),
		"rateLimit":    rate,
		"vlanId":       whole(o["tag"]),
		"trunks":       o["trunks"],
		"mtu":          whole(o["mtu"]),
	}, address
}

// decodePCI reads mappings and raw devices; rombar is on where it is not mentioned.
func decodePCI(config map[string]string) []any {
	out := []any{}

	for i := range 16 {
		name := fmt.Sprintf("hostpci%d", i)

		text, ok := config[name]
		if !ok {
			continue
		}

		o := parseOptions(text, "host")
		out = append(out, object{
			"device":  name,
			"id":      o["host"],
			"mapping": o["mapping"],
			"mdev":    o["mdev"],
			"pcie":    isTrue(o["pcie"]),
			"rombar":  orElse(o, "rombar", "1") == "1",
			"romFile": o["romfile"], "xvga": isTrue(o["x-vga"]),
		})
	}

	return out
}

// decodeNUMA leaves out what has no host nodes, like the published provider.
func decodeNUMA(config map[string]string) map[string]any {
	out := map[string]any{}

	for i := range 8 {
		name := fmt.Sprintf("numa%d", i)

		o := parseOptions(config[name], "cpus")
		if o["cpus"] == "" || o["hostnodes"] == "" {
			continue
		}

		out[name] = object{
			"device": name, "cpus": o["cpus"], "hostnodes": o["hostnodes"], "memory": whole(o["memory"]), "policy": o["policy"],
		}
	}

	return out
}

// decodeSerial keeps the position of a port: serial1 alone comes after an empty one.
func decodeSerial(config map[string]string) []any {
	out := []any{}

	for i := range 4 {
		if device, ok := config[fmt.Sprintf("serial%d", i)]; ok {
			for len(out) < i {
				out = append(out, object{"device": ""})
			}

			out = append(out, object{"device": device})
		}
	}

	return out
}

// decodeSMBIOS reads texts in base64, which is how they are sent, and plain ones as they are.
func decodeSMBIOS(text string) object {
	o := parseOptions(text, "uuid")
	out := object{"uuid": o["uuid"]}

	for _, name := range []string{"family", "manufacturer", "product", "serial", "sku", "version"} {
		out[name] = o[name]
		if plain, err := base64.StdEncoding.DecodeString(o[name]); err == nil {
			out[name] = string(plain)
		}
	}

	return out
}

// decodeStartup writes what is left out as -1, the published default.
func decodeStartup(text string) object {
	o := parseOptions(text, "order")

	return object{
		"order":     whole(orElse(o, "order", "-1")),
		"upDelay":   whole(orElse(o, "up", "-1")),
		"downDelay": whole(orElse(o, "down", "-1")),
	}
}

// decodeVGA tells a VM without a vga line from one with the default adapter.
func decodeVGA(text string, exists bool) object {
	if !exists {
		return object{"clipboard": "", "memory": 0.0, "type": ""}
	}

	o := parseOptions(text, "type")

	return object{"clipboard": o["clipboard"], "memory": whole(orElse(o, "memory", "16")), "type": o["type"]}
}

func decodeWatchdog(text string, exists bool) object {
	o := parseOptions(text, "model")

	return object{"enabled": exists, "action": orElse(o, "action", "none"), "model": orElse(o, "model", "i6300esb")}
}

// decodeTags sorts, because Proxmox may.
func decodeTags(text string) []any {
	var tags []string

	for tag := range strings.SplitSeq(text, ";") {
		if tag = strings.TrimSpace(tag); tag != "" {
			tags = append(tags, tag)
		}
	}

	slices.Sort(tags)

	return toList(tags)
}
