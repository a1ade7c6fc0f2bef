package datacentre

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"talos-proxmox/lab/image"
)

// Volume is a volume on a storage: a disk, an ISO, an image file.
type Volume struct {
	// ID is "local-lvm:vm-100-disk-0" or "local:iso/x.img".
	ID string
	// Host is the volume's host; empty = it is on a shared storage.
	Host, Storage string
	// Content is images, iso, import, snippets, vztmpl or backup.
	Content string
	// Format is raw, qcow2, iso, …
	Format string
	// SizeBytes is the size that a guest sees, UsedBytes the space occupied on the storage.
	SizeBytes, UsedBytes int64
	// VMID is the owner of a disk, 0 for files.
	VMID int
	// Base is the template's volume that a linked clone depends on.
	Base    string
	Created time.Time
	// Image is the content of a disk, Raw that of a disk without an image.
	Raw   []byte      `json:"raw,omitempty"`
	Image image.Image `json:"image"`
}

func (v *Volume) key() string { return volumeKey(v.Host, v.ID) }

func volumeKey(owner, id string) string { return owner + "/" + id }

// findVolume returns the volume with an id on a host, or nil; it requires the lock.
func (d *Datacentre) findVolume(hostName, id string) *Volume {
	if v := d.state.Volumes[volumeKey(hostName, id)]; v != nil {
		return v
	}

	store, name, _ := strings.Cut(id, ":")
	kind, name, _ := strings.Cut(name, "/")

	s, err := d.lookupStorage(hostName, store, "")

	switch {
	case err != nil:
		return nil
	case s.Shared:
		return d.state.Volumes[volumeKey("", id)]
	default:
		return s.findFile(kind, name)
	}
}

// diskVolume finds a volume by its id alone: on the host of its VM if it belongs to one, otherwise on any host. It
// requires the lock.
func (d *Datacentre) diskVolume(id string) *Volume {
	var found *Volume

	for _, h := range d.hosts {
		v := d.findVolume(h.Name, id)
		if v == nil {
			continue
		}

		if vm := d.state.VMs[v.VMID]; vm != nil && vm.Host == h.Name {
			return v
		}

		found = cmp.Or(found, v)
	}

	return found
}

// Volumes returns the volumes on a storage of a host, sorted by id; an empty content type matches all.
func (d *Datacentre) Volumes(hostName, storageName, content string) []Volume {
	defer d.lockRead()()

	list := []Volume{}

	s, err := d.lookupStorage(hostName, storageName, "")
	if err != nil {
		return list
	}

	for _, v := range d.volumesOn(s) {
		if content == "" || v.Content == content {
			list = append(list, *v)
		}
	}

	slices.SortFunc(list, func(a, b Volume) int { return strings.Compare(a.ID, b.ID) })

	return list
}

// Volume returns one volume of a host.
func (d *Datacentre) Volume(hostName, id string) (Volume, bool) {
	v := withLock(d, func() *Volume { return d.findVolume(hostName, id) })
	if v == nil {
		return Volume{}, false
	}

	return *v, true
}

// VolumePath returns a volume's path on the host, as `pvesm path` prints it.
func (d *Datacentre) VolumePath(hostName, id string) (string, error) {
	store, name, err := splitVolume(id)
	if err != nil {
		return "", err
	}

	s, err := d.lookupStorage(hostName, store, "")
	if err != nil {
		return "", err
	}

	return s.pathOf(name), nil
}

func (s *Storage) pathOf(name string) string {
	switch {
	case s.Path != "":
		return path.Join(s.Path, filePath(name))
	case s.Type == "zfspool":
		return "/dev/zvol/" + s.Name + "/" + name
	default:
		return "/dev/pve/" + name
	}
}

// filePath returns the path of a volume within a directory storage.
func filePath(name string) string {
	kind, file, ok := strings.Cut(name, "/")
	if !ok {
		return name
	}

	switch folder := contentFolders[kind]; {
	case folder != "":
		return folder + "/" + file
	case kind == "backup":
		return "dump/" + file
	default: // "100/vm-100-disk-0.qcow2"
		return "images/" + name
	}
}

// diskAt returns the disk at a path of a host, or nil; it requires the lock.
func (d *Datacentre) diskAt(hostName, file string) *Volume {
	for _, v := range d.state.Volumes {
		if p, err := d.VolumePath(hostName, v.ID); v.Host == hostName && err == nil && p == file {
			return v
		}
	}

	return nil
}

// ReadVolume returns the image on a disk or in a file. Bytes that are not an image are an error; a blank disk is not.
func (d *Datacentre) ReadVolume(id string) (image.Image, error) {
	defer d.lockRead()()

	v := d.diskVolume(id)
	if v == nil {
		return image.Image{}, Refuse("volume '%s' does not exist", id)
	}

	return d.image(v)
}

func (d *Datacentre) image(v *Volume) (image.Image, error) {
	if v.Content == "images" && len(v.Raw) == 0 {
		return v.Image, nil
	}

	content, err := d.volumeBytes(v)
	if err != nil {
		return image.Image{}, err
	}

	return image.Decode(content)
}

// WriteVolume replaces the content of a disk.
func (d *Datacentre) WriteVolume(id string, img image.Image) error {
	defer d.lockWrite()()

	v := d.diskVolume(id)
	if v == nil {
		return Refuse("volume '%s' does not exist", id)
	}

	if v.Content != "images" {
		return Refuse("volume '%s' is read-only", id)
	}

	v.Image, v.Raw = img, nil

	return nil
}

// AllocateVolume allocates an empty disk for a VMID, even without such a VM, and returns its id.
func (d *Datacentre) AllocateVolume(ctx context.Context, hostName, storageName, name string, vmid int, bytes int64) (
	string, error,
) {
	defer d.lockWrite()()

	s, err := d.lookupStorage(hostName, storageName, "images")
	if err != nil {
		return "", err
	}

	// Directory storages have a folder for each VM, and accept any name in it.
	bare, format, _ := strings.Cut(name, ".")
	if prefix := fmt.Sprintf("vm-%d-", vmid); s.Path == "" && !strings.HasPrefix(bare, prefix) {
		return "", Refuse("illegal name '%s' - should be '%s*'", name, prefix)
	}

	format = cmp.Or(format, defaultFormat)

	n := diskSpec{vmid: vmid, name: name, format: format, size: bytes}
	if s.Path != "" {
		n.name = s.volumeName(vmid, bare, format)
	}

	volume, err := d.allocateDisk(ctx, s, n)
	if err != nil {
		return "", err
	}

	return volume.ID, nil
}
