package proxmoxve

import (
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
	out := fieldsOf("agent").decoded(parseOptions(text, "enabled"))
	if out["timeout"] = timeout; timeout == "" {
		out["timeout"] = "15m"
	}

	return out
}

// decodeCPU states Proxmox' own defaults for what the configuration leaves out.
func decodeCPU(config map[string]string) object {
	out := fieldsOf("cpu").decoded(config)
	out["type"] = parseOptions(orElse(config, "cpu", "qemu64"), "cputype")["cputype"]

	return out
}

// decodeMemory takes an absent balloon for 0, as published; in Proxmox it would be the whole memory.
func decodeMemory(config map[string]string) object {
	out := fieldsOf("memory").decoded(config)
	out["shared"] = whole(parseOptions(config["ivshmem"], "size")["size"])

	return out
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

	// Proxmox writes a card as virtio=<address>.
	for _, model := range []string{"e1000", "e1000e", "rtl8139", "virtio", "vmxnet3"} {
		if address, ok := o[model]; ok {
			o["model"], o["macaddr"] = model, address
		}
	}

	out := fieldsOf("networkDevices").decoded(o)
	out["enabled"] = true

	return out, o["macaddr"]
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

		device := fieldsOf("hostpcis").decoded(parseOptions(text, "host"))
		device["device"] = name
		out = append(out, device)
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

// decodeStartup writes what is left out as -1, the published default.
func decodeStartup(text string) object {
	return fieldsOf("startup").decoded(parseOptions(text, "order"))
}

// decodeVGA tells a VM without a vga line from one with the default adapter.
func decodeVGA(text string, exists bool) object {
	if !exists {
		return object{"memory": 0.0, "type": ""}
	}

	return fieldsOf("vga").decoded(parseOptions(text, "type"))
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
