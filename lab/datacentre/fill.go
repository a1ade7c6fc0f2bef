package datacentre

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"talos-proxmox/lab/image"
)

// content is what an import brings.
type content struct {
	img  image.Image
	raw  []byte
	size int64
	// from is the storage it comes from, nil for a file that is on none.
	from *storage
}

// fill makes the volume of a planned drive and returns its value in the configuration. made lists new volumes, so that
// a failure can undo them.
func (d *Datacentre) fill(
	ctx context.Context, w *worker, hostName string, vmid int, p drivePlan, made *[]*volume,
) (string, error) {
	if !p.new() {
		return d.keepDrive(hostName, p.drive), nil
	}

	var c content

	if p.source != "" {
		var err error
		if c, err = d.readSource(hostName, p.source); err != nil {
			return "", err
		}

		w.log("%s: importing disk '%s' to '%s'", p.key, p.source, p.storage.Name)
	}

	drive, err := d.makeVolume(
		ctx, w, driveDisk(vmid, p, c), c.from, p.storage, p.props.With("import-from", ""), made,
	)
	if err != nil {
		return "", err
	}

	if p.cloudInit {
		return drive.With("media", "cdrom").With("size", "").Format("file"), nil
	}

	w.log("%s: successfully created disk '%s,size=%s'", p.key, drive.Get("file"), drive.Get("size"))

	return drive.Format("file"), nil
}

// driveDisk is the disk of a planned drive.
func driveDisk(vmid int, p drivePlan, c content) newDisk {
	n := newDisk{vmid: vmid, format: p.props.Get("format"), size: p.size, img: c.img, raw: c.raw}

	switch {
	case p.cloudInit:
		if n.format = "raw"; p.storage.Path != "" {
			n.format = "qcow2"
		}

		n.size, n.name = 4*mib, p.storage.place(vmid, fmt.Sprintf("vm-%d-cloudinit", vmid), n.format)
	case p.source != "":
		n.size = c.size
	case fixedSizes.MatchString(p.key):
		n.size = fixedSize(p.key, p.storage)
	}

	return n
}

// keepDrive completes the value of a drive whose volume exists.
func (d *Datacentre) keepDrive(hostName string, v drive) string {
	id := v.volume()
	if id == "" {
		return v.String()
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	vol := d.findVolume(hostName, id)
	if vol == nil || v.cloudInit() {
		return v.props.With("size", "").Format("file")
	}

	return v.props.With("size", FormatSize(vol.SizeBytes)).Format("file")
}

// readSource reads what is imported: a volume or a file of the host. Bytes that are no image become the disk's bytes,
// as they would on a real disk.
func (d *Datacentre) readSource(hostName, source string) (content, error) {
	d.mu.Lock()
	defer d.mu.Unlock()

	v := cmp.Or(d.findVolume(hostName, source), d.diskAt(hostName, source))
	if v != nil && v.Content == "images" {
		from, _ := d.needStorage(hostName, v.Storage, "") // one that is disabled still has its disks

		return content{img: v.Image, raw: v.Raw, size: v.SizeBytes, from: from}, nil
	}

	file := source

	if v != nil {
		var err error
		if file, err = d.VolumePath(hostName, v.ID); err != nil {
			return content{}, err
		}
	}

	b, err := os.ReadFile(d.hostPath(hostName, file))
	if err != nil {
		return content{}, fmt.Errorf("qemu-img: Could not open '%s': No such file or directory", file)
	}

	return newContent(b, d.storageAt(hostName, file)), nil
}

func newContent(b []byte, from *storage) content {
	img, err := image.Decode(b)
	if err != nil {
		return content{raw: b, size: (int64(len(b))/512 + 1) * 512, from: from}
	}

	c := content{img: img, size: smallImageBytes, from: from}
	if size, ok := image.VirtualSize(b); ok {
		c.size = size
	}

	if img.Platform != "" && img.Platform != "nocloud" && img.Platform != "metal" {
		c.size = largeImageBytes
	}

	return c
}

const rootUser = "root@pam"
