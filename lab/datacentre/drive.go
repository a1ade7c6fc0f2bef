package datacentre

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // PVE's digests are SHA-1.
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"

	"talos-proxmox/lab/image"
)

// drive is a disk or CD-ROM drive of a configuration.
type drive struct {
	key   string
	props Config
}

var allocationPattern = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9\-_.]*):(\d+(?:\.\d+)?|cloudinit)$`)

func parseDrive(key, value string) drive { return drive{key, ParseProperties(key, value)} }

func (v drive) file() string   { return v.props["file"] }
func (v drive) cdrom() bool    { return v.props["media"] == "cdrom" }
func (v drive) String() string { return v.props.Format(v.key) }

// volume returns the volume id, or "" for "none", "cdrom" and paths.
func (v drive) volume() string {
	if f := v.file(); strings.Contains(f, ":") && !strings.HasPrefix(f, "/") {
		return f
	}

	return ""
}

func (v drive) cloudInit() bool {
	return strings.Contains(v.file(), "-cloudinit") || strings.HasSuffix(v.file(), ":cloudinit")
}

// drives returns the disks and CD-ROM drives, sorted by key.
func (c Config) drives() []drive {
	var list []drive

	for _, k := range slices.Sorted(maps.Keys(c)) {
		if IsDrive(k) {
			list = append(list, parseDrive(k, c[k]))
		}
	}

	return list
}

// digest returns the digest of a configuration in the form of PVE's file, except that the description is not a comment.
func digest(c Config) string {
	sum := sha1.New() //nolint:gosec // as above.

	for _, k := range slices.Sorted(maps.Keys(c)) {
		fmt.Fprintf(sum, "%s: %s\n", k, c[k])
	}

	return hex.EncodeToString(sum.Sum(nil))
}

// canonicalNIC rewrites "model=virtio,macaddr=M,…" and "virtio,…" as "virtio=M,…". It generates an address with
// Proxmox' prefix if there is none, or if renew is set.
func canonicalNIC(key, value string, renew bool) string {
	p := ParseProperties(key, value)
	if p["macaddr"] == "" || renew {
		b := make([]byte, 3)
		_, _ = rand.Read(b)
		p["macaddr"] = fmt.Sprintf("BC:24:11:%02X:%02X:%02X", b[0], b[1], b[2])
	}

	return p.With("model", p["model"]+"="+p["macaddr"]).With("macaddr", "").Format(key)
}

// setIdentity generates a configuration's SMBIOS UUID, generation id and MAC addresses, or only the missing ones.
func (c Config) setIdentity(renew bool) {
	p := c.Properties("smbios1")
	if p["uuid"] == "" || renew {
		p["uuid"] = uuid.NewString()
	}

	c["smbios1"] = p.Format("smbios1")

	if g := c["vmgenid"]; g == "" || g == "1" || renew && g != "0" {
		c["vmgenid"] = uuid.NewString()
	}

	for k, v := range c {
		if isIndexed(k, "net") {
			c[k] = canonicalNIC(k, v, renew)
		}
	}
}

// isIndexed reports whether a key is the prefix followed by a number.
func isIndexed(key, prefix string) bool {
	m := indexedKey.FindStringSubmatch(key)

	return m != nil && m[1] == prefix
}

// BootOrder returns the drives and network cards to boot from, in order.
func (c Config) BootOrder() []string {
	if order := c.explicitBootOrder(); len(order) > 0 {
		return order
	}

	return c.defaultBoot()
}

// BootDiskBytes returns the size of the first disk in the boot order, or 0 if there is none.
func (c Config) BootDiskBytes() int64 {
	for _, key := range c.BootOrder() {
		if dr := parseDrive(key, c[key]); IsDrive(key) && !dr.cdrom() && dr.volume() != "" {
			size, _ := ParseSize(dr.props["size"]) //nolint:errcheck // an unknown size is 0

			return size
		}
	}

	return 0
}

// defaultBoot returns PVE's default order: the first disk, the first CD-ROM drive, the first network card.
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

// createDrive creates the volume of a planned drive and returns the drive's value in the configuration.
func (d *Datacentre) createDrive(
	ctx context.Context, w *worker, hostName string, vmid int, p drivePlan,
) (string, error) {
	if !p.needsVolume() {
		return d.existingDrive(hostName, p.drive), nil
	}

	var (
		n    diskSpec
		from *Storage
	)

	if p.source != "" {
		var err error
		if n, from, err = d.readImportSource(hostName, p.source); err != nil {
			return "", err
		}

		w.log("%s: importing disk '%s' to '%s'", p.key, p.source, p.storage.Name)
	}

	n.setTarget(vmid, p)

	drive, err := d.createDisk(ctx, w, n, from, p.storage, p.props.With("import-from", ""))
	if err != nil {
		return "", err
	}

	if p.cloudInit {
		return drive.With("media", "cdrom").With("size", "").Format(p.key), nil
	}

	w.log("%s: successfully created disk '%s,size=%s'", p.key, drive["file"], drive["size"])

	return drive.Format(p.key), nil
}

// setTarget sets the disk's properties from a planned drive. An imported disk keeps its source's size.
func (n *diskSpec) setTarget(vmid int, p drivePlan) {
	n.vmid, n.format = vmid, p.props["format"]

	switch {
	case p.cloudInit:
		if n.format = "raw"; p.storage.Path != "" {
			n.format = "qcow2"
		}

		n.size, n.name = 4*mib, p.storage.volumeName(vmid, fmt.Sprintf("vm-%d-cloudinit", vmid), n.format)
	case p.source != "":
	case p.key == "efidisk0" || p.key == "tpmstate0":
		n.size = firmwareDiskSize(p.key, p.storage)
	default:
		n.size = p.size
	}
}

// existingDrive adds the size to the value of a drive whose volume exists.
func (d *Datacentre) existingDrive(hostName string, v drive) string {
	if v.volume() == "" {
		return v.String()
	}

	size := ""
	if vol := d.findVolume(hostName, v.volume()); vol != nil && !v.cloudInit() {
		size = FormatSize(vol.SizeBytes)
	}

	return v.props.With("size", size).Format(v.key)
}

// readImportSource reads the volume or file to import, and returns the storage that it is on. Bytes that are not an
// image become the disk's bytes, as on a real disk.
func (d *Datacentre) readImportSource(hostName, source string) (diskSpec, *Storage, error) {
	v := cmp.Or(d.findVolume(hostName, source), d.diskAt(hostName, source))
	if v != nil && v.Content == "images" {
		from, _ := d.lookupStorage(hostName, v.Storage, "") // a disabled storage still has its disks

		return diskSpec{img: v.Image, raw: v.Raw, size: v.SizeBytes}, from, nil
	}

	file := source

	if v != nil {
		var err error
		if file, err = d.VolumePath(hostName, v.ID); err != nil {
			return diskSpec{}, nil, err
		}
	}

	b, err := os.ReadFile(d.hostPath(hostName, file))
	if err != nil {
		return diskSpec{}, nil, fmt.Errorf("qemu-img: Could not open '%s': No such file or directory", file)
	}

	return diskFromBytes(b), d.storageAt(hostName, file), nil
}

func diskFromBytes(b []byte) diskSpec {
	img, err := image.Decode(b)
	if err != nil {
		return diskSpec{raw: b, size: (int64(len(b))/512 + 1) * 512}
	}

	n := diskSpec{img: img, size: smallImageBytes}
	if size, ok := image.VirtualSize(b); ok {
		n.size = size
	}

	if img.Platform != "" && img.Platform != "nocloud" && img.Platform != "metal" {
		n.size = largeImageBytes
	}

	return n
}

const rootUser = "root@pam"
