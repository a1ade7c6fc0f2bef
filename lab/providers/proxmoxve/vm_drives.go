package proxmoxve

import (
	"context"
	"maps"
	"net"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"
)

// agentInterval is the pause between two requests to the guest agent, in polling intervals.
const agentInterval = 5

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// readDrives reads CD-ROM, disks, TPM and EFI disk.
func (r *vmReader) readDrives(ctx context.Context) error {
	r.readCDROM()

	if !r.clone || len(list(r.before, "disks")) > 0 {
		if err := r.readDisks(ctx); err != nil {
			return err
		}
	}

	r.readTPM()

	return r.readEFIDisk(ctx)
}

// readCDROM reads the interface of the state, or the default one.
func (r *vmReader) readCDROM() {
	before := child(r.before, "cdrom")

	iface := "ide3"
	if before != nil {
		iface = str(before, "interface")
	}

	text, exists := r.config[iface]

	switch {
	case !exists:
		// As published, the block is dropped, so that a program without it has a permanent difference.
		r.out["cdrom"] = nil
	case r.clone && before == nil:
	default:
		found := object{"enabled": true, "fileId": parseOptions(text, "file")["file"], "interface": iface}

		if before != nil && str(before, "fileId") == "" {
			found["fileId"] = ""
		}

		if before != nil && !flag(before, "enabled") {
			found["enabled"] = false
		}

		r.out["cdrom"] = found
	}
}

// readDisks reads the disks of the state; without a state, all except cloud-init and empty drives.
func (r *vmReader) readDisks(ctx context.Context) error {
	found := map[string]any{}

	for _, name := range sortedKeys(r.config) {
		if !drivePattern.MatchString(name) || cloudInitDrive(map[string]string{name: r.config[name]}, r.m.id, "") != "" {
			continue
		}

		o := parseOptions(r.config[name], "file")
		if o["file"] == "none" {
			continue
		}

		d, err := r.decodeDisk(ctx, name, o)
		if err != nil {
			return err
		}

		found[name] = d
	}

	// In the order of the state, or sorted by name.
	before := children(r.before, "disks")
	out := []any{}

	for _, d := range before {
		out = append(out, found[str(d, "interface")])
	}

	if len(before) == 0 {
		for _, name := range sortedKeys(found) {
			out = append(out, found[name])
		}
	}

	r.out["disks"] = out

	return nil
}

// decodeDisk takes the format from the configuration, the volume's name or the storage, in this order.
func (r *vmReader) decodeDisk(ctx context.Context, name string, o map[string]string) (object, error) {
	storage, inside, ok := strings.Cut(o["file"], ":")
	if !ok {
		storage, inside = "", storage
	}

	size, err := parseSize(o["size"])
	if err != nil {
		return nil, err
	}

	format, ok := o["format"]
	if extension := path.Ext(o["file"]); !ok && extension != "" {
		format, ok = extension[1:], true
	}

	if !ok {
		if format, err = r.m.volumeFormat(ctx, o["file"]); err != nil {
			return nil, err
		}
	}

	// As published, a disk without limits has no speed block, while the default of the program is one: a permanent
	// difference.
	d := diskTable().decodeAll(o)
	d["datastoreId"], d["pathInDatastore"], d["fileFormat"] = storage, inside, format
	d["interface"], d["size"] = name, float64(size>>30)

	return d, nil
}

// readTPM reads the TPM of a clone only if the program sets one. As published, the version is always the default, and a
// TPM that is gone stays.
func (r *vmReader) readTPM() {
	text, ok := r.config["tpmstate0"]
	if !ok || r.clone && r.before["tpmState"] == nil {
		return
	}

	storage, _, _ := strings.Cut(parseOptions(text, "file")["file"], ":")
	r.out["tpmState"] = object{"datastoreId": storage, "version": "v2.0"}
}

// readEFIDisk reads the EFI disk of a clone only if the program sets one.
func (r *vmReader) readEFIDisk(ctx context.Context) error {
	text, ok := r.config["efidisk0"]
	if !ok || r.clone && r.before["efiDisk"] == nil {
		return nil
	}

	o := parseOptions(text, "file")
	storage, _, _ := strings.Cut(o["file"], ":")

	format, ok := o["format"]
	if !ok {
		var err error
		if format, err = r.m.volumeFormat(ctx, o["file"]); err != nil {
			return err
		}
	}

	r.out["efiDisk"] = object{
		"datastoreId":     storage,
		"fileFormat":      format,
		"type":            strings.ToLower(valueOr(o, "efitype", "2m")),
		"preEnrolledKeys": isTrue(o["pre-enrolled-keys"]),
	}

	return nil
}

// readNetwork reads the network devices and, if the guest agent is enabled, what the guest reports.
func (r *vmReader) readNetwork(ctx context.Context) {
	addresses := make([]string, len(list(r.before, "networkDevices")))
	found := children(r.out, "networkDevices")

	for i := range min(len(addresses), len(found)) {
		addresses[i] = str(found[i], "macAddress")
	}

	r.out["macAddresses"] = toList(addresses)

	var guest guestNetwork

	if flag(r.out, "started") && isTrue(parseOptions(r.config["agent"], "enabled")["enabled"]) {
		timeout, err := time.ParseDuration(str(child(r.out, "agent"), "timeout"))
		if err != nil {
			timeout = 15 * time.Minute
		}

		guest = r.m.guestNetwork(ctx, timeout)
		r.out["macAddresses"] = toList(guest.macs)
	}

	r.out["ipv4Addresses"], r.out["ipv6Addresses"] = toLists(guest.ipv4), toLists(guest.ipv6)
	r.out["networkInterfaceNames"] = toList(guest.names)
}

// guestNetwork is what the guest reports, one element per interface.
type guestNetwork struct {
	names, macs []string
	ipv4, ipv6  [][]string
}

func toLists(values [][]string) []any {
	out := make([]any, 0, len(values))
	for _, v := range values {
		out = append(out, toList(v))
	}

	return out
}

// guestInterface is an interface in the agent's response.
type guestInterface struct {
	Name      string `json:"name"`
	MAC       string `json:"hardware-address"`
	Addresses []struct {
		Address string `json:"ip-address"`
		Type    string `json:"ip-address-type"`
	} `json:"ip-addresses"`
}

// guestNetwork polls the agent until it reports an address, and returns nothing after the timeout.
func (m machine) guestNetwork(ctx context.Context, timeout time.Duration) guestNetwork {
	limit, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	for {
		var answer struct {
			Result []guestInterface `json:"result"`
		}

		err := m.api.call(limit, http.MethodGet, m.path("agent/network-get-interfaces"), nil, &answer)
		if err == nil && slices.ContainsFunc(answer.Result, guestInterface.reachable) {
			return summarize(answer.Result)
		}

		// Neither the agent's timeout nor an interrupt is an error.
		if sleep(limit, agentInterval*m.api.o.poll, interrupt(ctx)) != nil {
			return guestNetwork{}
		}
	}
}

// reachable reports whether an interface has an address that others can reach, which ends the wait.
func (g guestInterface) reachable() bool {
	for _, a := range g.Addresses {
		if ip := net.ParseIP(a.Address); g.Name != "lo" && ip != nil && ip.IsGlobalUnicast() {
			return true
		}
	}

	return false
}

func summarize(found []guestInterface) guestNetwork {
	var out guestNetwork

	for _, g := range found {
		var v4, v6 []string

		for _, a := range g.Addresses {
			switch a.Type {
			case "ipv4":
				v4 = append(v4, a.Address)
			case "ipv6":
				v6 = append(v6, a.Address)
			}
		}

		out.names, out.macs = append(out.names, g.Name), append(out.macs, strings.ToUpper(g.MAC))
		out.ipv4, out.ipv6 = append(out.ipv4, v4), append(out.ipv6, v6)
	}

	return out
}
