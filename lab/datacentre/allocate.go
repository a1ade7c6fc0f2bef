package datacentre

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	"talos-proxmox/lab/image"
)

const (
	mib = int64(1) << 20
	// Virtual sizes of Talos' raw images: small for bare metal and nocloud, large for clouds.
	smallImageBytes, largeImageBytes = 1246 * mib, 8192 * mib
	// imageUsedBytes is the space that an installed system occupies on a thin storage.
	imageUsedBytes = smallImageBytes
	// defaultFormat is the format of disks on every storage.
	defaultFormat = "raw"
)

// diskName returns the name of a VM's next disk on a storage; it requires the lock.
func (d *Datacentre) diskName(s *Storage, vmid int, format string) string {
	for n := 0; ; n++ {
		name := fmt.Sprintf("vm-%d-disk-%d", vmid, n)
		if !d.isNameTaken(s, name) && !d.isNameTaken(s, fmt.Sprintf("base-%d-disk-%d", vmid, n)) {
			return s.volumeName(vmid, name, format)
		}
	}
}

// volumeName returns a disk's volume name in the form of the storage's type.
func (s *Storage) volumeName(vmid int, name, format string) string {
	if s.Path != "" {
		return fmt.Sprintf("%d/%s.%s", vmid, name, format)
	}

	return name
}

func (d *Datacentre) isNameTaken(s *Storage, name string) bool {
	for _, v := range d.state.Volumes {
		if v.Host == s.Host && v.Storage == s.Name && bareName(v.ID) == name {
			return true
		}
	}

	return false
}

// bareName returns the last part of a volume id without its extension.
func bareName(id string) string {
	_, name, _ := strings.Cut(id, ":")
	name = path.Base(name)

	return strings.TrimSuffix(name, path.Ext(name))
}

type diskSpec struct {
	vmid   int
	name   string // the next free one by default
	format string
	size   int64
	base   string
	img    image.Image
	raw    []byte
}

// allocateDisk allocates an empty disk, which writeDisk fills. A storage allocates one at a time.
func (d *Datacentre) allocateDisk(ctx context.Context, s *Storage, n diskSpec) (*Volume, error) {
	unlock, err := d.lockStorage(ctx, s)
	if err != nil {
		return nil, err
	}
	defer unlock()

	if err := cmp.Or(d.sleep(ctx, d.options.Durations.AllocateVolume), s.checkContent("images")); err != nil {
		return nil, err
	}

	if n.format == "" || s.Path == "" {
		n.format = defaultFormat
	}

	name := cmp.Or(n.name, d.diskName(s, n.vmid, n.format))
	if d.state.Volumes[volumeKey(s.Host, s.Name+":"+name)] != nil {
		if s.Path != "" {
			return nil, Refuse("disk image '%s' already exists", s.pathOf(name))
		}

		return nil, Refuse("volume '%s:%s' already exists", s.Name, name)
	}

	v := &Volume{
		Format: n.format, Storage: s.Name, Host: s.Host, Content: "images", SizeBytes: n.size, VMID: n.vmid, Base: n.base,
		Created: time.Now(),
	}

	if n.base != "" {
		// A linked clone occupies no space of its own, and has its base's content from the start.
		v.Image, v.Raw = n.img, n.raw

		if s.Type != "lvmthin" {
			_, base, _ := strings.Cut(n.base, ":")
			name = base + "/" + name
		}
	}

	if err := d.checkDiskSpace(s, name); err != nil {
		return nil, err
	}

	v.ID = s.Name + ":" + name
	d.state.Volumes[v.key()] = v

	return v, nil
}

// createDisk allocates a disk, writes its content, and returns the drive's properties with its volume.
func (d *Datacentre) createDisk(
	ctx context.Context, w *worker, n diskSpec, from, to *Storage, drive Config,
) (Config, error) {
	v, err := d.allocateDisk(ctx, to, n)
	if err != nil {
		return nil, err
	}

	w.createdVolumes = append(w.createdVolumes, v)
	drive = drive.With("file", v.ID).With("format", "").With("size", FormatSize(v.SizeBytes))

	return drive, d.writeDisk(ctx, w, v, n, from, to)
}

// writeDisk copies an image or bytes to a disk, from a storage if they come from one. Like qemu-img, it fails halfway
// when the target is full.
func (d *Datacentre) writeDisk(ctx context.Context, w *worker, v *Volume, n diskSpec, from, to *Storage) error {
	if n.img.OS == "" && len(n.img.State)+len(n.raw) == 0 || n.base != "" {
		return nil
	}

	bytes, storages := min(n.size, imageUsedBytes), []*Storage{to}
	if from != nil {
		storages = []*Storage{from, to}
	}

	if err := d.copyBytes(ctx, bytes, storages...); err != nil {
		return err
	}

	if free := to.SizeBytes - d.usedBytes(to); free < bytes {
		w.log("qemu-img: error while writing at byte %d: No space left on device", max(free, 0))

		return fmt.Errorf(
			"copy failed: command '/usr/bin/qemu-img convert -p -n -O %s %s' failed: exit code 1", v.Format,
			to.pathOf(strings.TrimPrefix(v.ID, to.Name+":")),
		)
	}

	v.UsedBytes, v.Image, v.Raw = bytes, n.img, n.raw

	return nil
}

// deleteVolumes requires the lock.
func (d *Datacentre) deleteVolumes(list ...*Volume) {
	for _, v := range list {
		delete(d.state.Volumes, v.key())
	}
}

// hasLinkedClones reports whether linked clones depend on the volume. LVM-thin does not track them.
func (d *Datacentre) hasLinkedClones(v *Volume) bool {
	for _, c := range d.state.Volumes {
		if c.Base == v.ID && c.Host == v.Host && strings.Contains(c.ID, "/") {
			return true
		}
	}

	return false
}

// drivePlan is a checked drive of a request, with what creating it takes.
type drivePlan struct {
	drive
	storage *Storage
	// size is set for a new blank disk, cloudInit for a new cloud-init drive, source for an import.
	size      int64
	cloudInit bool
	source    string
	// missing is the error of a volume that does not exist; a VM's creation reports it in its task.
	missing error
}

// needsVolume reports whether the drive needs a new volume.
func (p drivePlan) needsVolume() bool { return p.storage != nil }

// planDrive checks a drive's value in a request, and the subject's permission for its storage and volume.
func (s subject) planDrive(hostName string, v drive) (p drivePlan, err error) {
	p.drive = v
	m := allocationPattern.FindStringSubmatch(v.file())

	switch {
	case v.file() == "cdrom":
		return p, s.authorisePath("/", "Sys.Console")
	case m == nil:
		return p, s.planExisting(hostName, v, &p.missing)
	}

	if p.cloudInit = m[2] == "cloudinit"; !p.cloudInit {
		if err := s.authorisePath("/storage/"+m[1], "Datastore.AllocateSpace"); err != nil {
			return p, err
		}
	}

	if p.storage, err = s.d.lookupStorage(hostName, m[1], "images"); err != nil || p.cloudInit {
		return p, err
	}

	if p.source = v.props["import-from"]; p.source != "" {
		return p, s.planImport(hostName, v.key, p.source, &p.missing)
	}

	p.size, err = ParseSize(m[2] + "G")

	return p, err
}

// planExisting checks an existing volume. It sets missing if nothing is wrong but that the volume does not exist.
func (s subject) planExisting(hostName string, v drive, missing *error) error {
	id := v.volume()

	switch {
	case strings.HasPrefix(v.file(), "/") && s.user != rootUser:
		return errRootPath
	case id == "":
		return nil
	}

	store, name, err := splitVolume(id)
	if err != nil {
		return err
	}

	on, err := s.d.lookupStorage(hostName, store, "")

	switch {
	case err != nil:
		return err
	case strings.HasPrefix(name, "iso/") && !v.cdrom():
		return WrongParameter(v.key, "explicit 'media=cdrom' is required for iso images")
	case on.Path != "" && !strings.Contains(name, "/"):
		return Refuse("unable to parse directory volume name '%s'", name)
	case s.d.findVolume(hostName, id) == nil:
		*missing = Refuse("volume '%s' does not exist", id)

		return *missing
	default:
		return s.authoriseVolume(hostName, id)
	}
}

var errRootPath = Refuse("Only root can pass arbitrary filesystem paths.")

// planImport checks the source of an import; missing is as in planExisting.
func (s subject) planImport(hostName, key, source string, missing *error) error {
	v := s.d.findVolume(hostName, source)

	switch {
	case strings.HasPrefix(source, "/") && s.user != rootUser:
		return errRootPath
	case strings.HasPrefix(source, "/"):
		return nil
	case v == nil:
		*missing = Refuse("cannot import from '%s' - could not get size of %s", source, source)

		return *missing
	case v.Content == "images" && v.VMID != 0:
		return s.authorisePath(fmt.Sprintf("/vms/%d", v.VMID), "VM.Clone")
	case v.Content != "images" && v.Content != "import":
		return WrongParameter(key, "%s has wrong type '%s' - needs to be 'images' or 'import'", source, v.Content)
	default:
		return s.authoriseVolume(hostName, source)
	}
}

// firmwareDiskSize returns the size of an EFI variables disk or a TPM state on a storage.
func firmwareDiskSize(key string, s *Storage) int64 {
	switch {
	case key == "tpmstate0" || s.Type == "lvmthin" || s.Type == "lvm":
		return 4 * mib
	case s.Type == "zfspool":
		return mib
	default:
		return 528 << 10
	}
}
