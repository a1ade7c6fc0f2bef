package datacentre

import (
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // PVE's digests are SHA-1.
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// drive is a disk or CD-ROM of a configuration.
type drive struct {
	key   string
	props Properties
}

var allocation = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9\-_.]*):(\d+(?:\.\d+)?|cloudinit)$`)

func parseDrive(key, value string) drive { return drive{key, ParseProperties(value, "file")} }

func (v drive) file() string   { return v.props.Get("file") }
func (v drive) cdrom() bool    { return v.props.Get("media") == "cdrom" }
func (v drive) String() string { return v.props.Format("file") }

// volume returns the volume id, empty for "none", "cdrom" and paths.
func (v drive) volume() string {
	if f := v.file(); strings.Contains(f, ":") && !strings.HasPrefix(f, "/") {
		return f
	}

	return ""
}

func (v drive) cloudInit() bool {
	return strings.Contains(v.file(), "-cloudinit") || strings.HasSuffix(v.file(), ":cloudinit")
}

// drives returns the disks and CD-ROMs by key.
func (c Config) drives() []drive {
	var list []drive

	for _, k := range slices.Sorted(maps.Keys(c)) {
		if IsDrive(k) {
			list = append(list, parseDrive(k, c[k]))
		}
	}

	return list
}

// text is the configuration as PVE's file has it, without the description's comment form.
func (c Config) text() string {
	var b strings.Builder

	for _, k := range slices.Sorted(maps.Keys(c)) {
		fmt.Fprintf(&b, "%s: %s\n", k, c[k])
	}

	return b.String()
}

func digest(c Config) string {
	sum := sha1.Sum([]byte(c.text())) //nolint:gosec // as above.

	return hex.EncodeToString(sum[:])
}

// newMAC returns a random address under Proxmox' own prefix.
func newMAC() string {
	b := make([]byte, 3)
	_, _ = rand.Read(b)

	return fmt.Sprintf("BC:24:11:%02X:%02X:%02X", b[0], b[1], b[2])
}

var nicModels = strings.Fields("e1000 e1000-82540em e1000-82544gc e1000-82545em e1000e i82551 i82557b i82559er ne2k_isa ne2k_pci pcnet rtl8139 virtio vmxnet3")

// canonicalNIC turns "model=virtio,macaddr=M,…" and "virtio,…" into "virtio=M,…", with a new address where there is
// none or where a renewal is requested.
func canonicalNIC(value string, renew bool) string {
	p := ParseProperties(value, "model")
	model, mac := p.Get("model"), p.Get("macaddr")

	for _, m := range nicModels {
		if v := p.Get(m); v != "" {
			model, mac = m, v
		}

		p = p.With(m, "")
	}

	if mac == "" || renew {
		mac = newMAC()
	}

	p = p.With("model", model+"="+mac).With("macaddr", "")

	return p.Format("model")
}

// identify gives a configuration its identity: SMBIOS UUID, generation id, MACs.
func (c Config) identify(renew bool) {
	p := ParseProperties(c["smbios1"], "uuid")
	if p.Get("uuid") == "" || renew {
		p = p.With("uuid", uuid.NewString())
	}

	slices.SortStableFunc(p, func(a, b Property) int { return strings.Compare(b.Key, a.Key) })
	c["smbios1"] = p.Format("")

	if g := c["vmgenid"]; g == "" || g == "1" || renew && g != "0" {
		c["vmgenid"] = uuid.NewString()
	}

	for k, v := range c {
		if isIndexed(k, "net") {
			c[k] = canonicalNIC(v, renew)
		}
	}
}

// isIndexed says whether a key is the prefix and a number.
func isIndexed(key, prefix string) bool {
	m := indexedKey.FindStringSubmatch(key)

	return m != nil && m[1] == prefix
}

func metaNow() string { return fmt.Sprintf("creation-qemu=10.1.2,ctime=%d", time.Now().Unix()) }

// BootOrder lists the drives and cards to boot from, in order.
func (c Config) BootOrder() []string {
	if o := ParseProperties(c["boot"], "legacy").Get("order"); o != "" {
		return strings.Split(o, ";")
	}

	return c.defaultBoot()
}

// BootDiskBytes is the size of the first disk to boot from, 0 without one.
func (c Config) BootDiskBytes() int64 {
	for _, key := range c.BootOrder() {
		if dr := parseDrive(key, c[key]); IsDrive(key) && !dr.cdrom() && dr.volume() != "" {
			size, _ := ParseSize(dr.props.Get("size")) //nolint:errcheck // one that is not known is 0

			return size
		}
	}

	return 0
}

// defaultBoot is what PVE boots without an order: the first disk, the first CD-ROM, the first card.
func (c Config) defaultBoot() []string {
	var disk, cdrom, nic string

	for _, prefix := range []string{"ide", "scsi", "virtio", "sata"} {
		for _, v := range c.drives() {
			switch {
			case !isIndexed(v.key, prefix):
			case (v.cdrom() || v.cloudInit()) && cdrom == "":
				cdrom = v.key
			case !v.cdrom() && !v.cloudInit() && disk == "":
				disk = v.key
			}
		}
	}

	for _, k := range slices.Sorted(maps.Keys(c)) {
		if isIndexed(k, "net") && nic == "" {
			nic = k
		}
	}

	return slices.DeleteFunc([]string{disk, cdrom, nic}, func(s string) bool { return s == "" })
}
