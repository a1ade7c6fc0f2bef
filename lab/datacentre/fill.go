package datacentre

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"talos-proxmox/lab/image"
)

// fill makes the volume of a planned drive and returns its value in the configuration.
func (d *Datacentre) fill(ctx context.Context, w *worker, hostName string, vmid int, p drivePlan) (string, error) {
	if !p.new() {
		return d.keepDrive(hostName, p.drive), nil
	}

	var (
		n    newDisk
		from *Storage
	)

	if p.source != "" {
		var err error
		if n, from, err = d.readSource(hostName, p.source); err != nil {
			return "", err
		}

		w.log("%s: importing disk '%s' to '%s'", p.key, p.source, p.storage.Name)
	}

	n.place(vmid, p)

	drive, err := d.makeVolume(ctx, w, n, from, p.storage, p.props.With("import-from", ""))
	if err != nil {
		return "", err
	}

	if p.cloudInit {
		return drive.With("media", "cdrom").With("size", "").Format("file"), nil
	}

	w.log("%s: successfully created disk '%s,size=%s'", p.key, drive.Get("file"), drive.Get("size"))

	return drive.Format("file"), nil
}

// place makes it the disk of a planned drive: one of an import has its source's size.
func (n *newDisk) place(vmid int, p drivePlan) {
	n.vmid, n.format = vmid, p.props.Get("format")

	switch {
	case p.cloudInit:
		if n.format = "raw"; p.storage.Path != "" {
			n.format = "qcow2"
		}

		n.size, n.name = 4*mib, p.storage.place(vmid, fmt.Sprintf("vm-%d-cloudinit", vmid), n.format)
	case p.source != "":
	case fixedSizes.MatchString(p.key):
		n.size = fixedSize(p.key, p.storage)
	default:
		n.size = p.size
	}
}

// keepDrive completes the value of a drive whose volume exists.
func (d *Datacentre) keepDrive(hostName string, v drive) string {
	id := v.volume()
	if id == "" {
		return v.String()
	}

	vol := d.findVolume(hostName, id)
	if vol == nil || v.cloudInit() {
		return v.props.With("size", "").Format("file")
	}

	return v.props.With("size", FormatSize(vol.SizeBytes)).Format("file")
}

// readSource reads what is imported: a volume or a file of the host, and the storage that it is on. Bytes that are no
// image become the disk's bytes, as they would on a real disk.
func (d *Datacentre) readSource(hostName, source string) (newDisk, *Storage, error) {
	v := cmp.Or(d.findVolume(hostName, source), d.diskAt(hostName, source))
	if v != nil && v.Content == "images" {
		from, _ := d.needStorage(hostName, v.Storage, "") // one that is disabled still has its disks

		return newDisk{img: v.Image, raw: v.Raw, size: v.SizeBytes}, from, nil
	}

	file := source

	if v != nil {
		var err error
		if file, err = d.VolumePath(hostName, v.ID); err != nil {
			return newDisk{}, nil, err
		}
	}

	b, err := os.ReadFile(d.hostPath(hostName, file))
	if err != nil {
		return newDisk{}, nil, fmt.Errorf("qemu-img: Could not open '%s': No such file or directory", file)
	}

	return imported(b), d.storageAt(hostName, file), nil
}

func imported(b []byte) newDisk {
	img, err := image.Decode(b)
	if err != nil {
		return newDisk{raw: b, size: (int64(len(b))/512 + 1) * 512}
	}

	n := newDisk{img: img, size: smallImageBytes}
	if size, ok := image.VirtualSize(b); ok {
		n.size = size
	}

	if img.Platform != "" && img.Platform != "nocloud" && img.Platform != "metal" {
		n.size = largeImageBytes
	}

	return n
}

const rootUser = "root@pam"
