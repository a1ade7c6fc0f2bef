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
	// The virtual sizes of Talos' raw images: small where they are written to machines, large in clouds.
	smallImageBytes, largeImageBytes = 1246 * mib, 8192 * mib
	// imageUsedBytes is what a written system takes of a thin storage.
	imageUsedBytes = smallImageBytes
	// defaultFormat is that of disks on every storage.
	defaultFormat = "raw"
)

// diskName returns the name of a VM's next disk on a storage; called with the lock held.
func (d *Datacentre) diskName(s *Storage, vmid int, format string) string {
	for n := 0; ; n++ {
		name := fmt.Sprintf("vm-%d-disk-%d", vmid, n)
		if !d.nameTaken(s, name) && !d.nameTaken(s, fmt.Sprintf("base-%d-disk-%d", vmid, n)) {
			return s.place(vmid, name, format)
		}
	}
}

// place is the name of a disk as the storage's type writes it.
func (s *Storage) place(vmid int, name, format string) string {
	if s.Path != "" {
		return fmt.Sprintf("%d/%s.%s", vmid, name, format)
	}

	return name
}

func (d *Datacentre) nameTaken(s *Storage, name string) bool {
	for _, v := range d.state.Volumes {
		if v.Host == s.Host && v.Storage == s.Name && bareName(v.ID) == name {
			return true
		}
	}

	return false
}

// bareName is the last part of a volume id without its format.
func bareName(id string) string {
	_, name, _ := strings.Cut(id, ":")
	name = path.Base(name)

	return strings.TrimSuffix(name, path.Ext(name))
}

type newDisk struct {
	vmid   int
	name   string // empty: the next free one
	format string
	size   int64
	base   string
	img    image.Image
	raw    []byte
}

// allocate makes a disk, empty as yet: write brings its content. A storage makes one at a time.
func (d *Datacentre) allocate(ctx context.Context, s *Storage, n newDisk) (*Volume, error) {
	unlock, err := d.lockStorage(ctx, s)
	if err != nil {
		return nil, err
	}
	defer unlock()

	if err := cmp.Or(d.sleep(ctx, d.options.Durations.AllocateVolume), s.need("images")); err != nil {
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
		// A linked clone takes nothing by itself, and is a system at once.
		v.Image, v.Raw = n.img, n.raw

		if s.Type != "lvmthin" {
			_, base, _ := strings.Cut(n.base, ":")
			name = base + "/" + name
		}
	}

	if err := d.roomForDisk(s, name); err != nil {
		return nil, err
	}

	v.ID = s.Name + ":" + name
	d.state.Volumes[v.key()] = v

	return v, nil
}

// makeVolume makes a disk with its content, and returns the drive's properties with it.
func (d *Datacentre) makeVolume(
	ctx context.Context, w *worker, n newDisk, from, to *Storage, drive Config,
) (Config, error) {
	v, err := d.allocate(ctx, to, n)
	if err != nil {
		return nil, err
	}

	w.made = append(w.made, v)
	drive = drive.With("file", v.ID).With("format", "").With("size", FormatSize(v.SizeBytes))

	return drive, d.write(ctx, w, v, n, from, to)
}

// write copies an image or bytes to a disk, from a storage where it comes from one. What does not fit ends it halfway,
// as qemu-img ends.
func (d *Datacentre) write(ctx context.Context, w *worker, v *Volume, n newDisk, from, to *Storage) error {
	if n.img.OS == "" && len(n.raw) == 0 || n.base != "" {
		return nil
	}

	bytes, over := min(n.size, imageUsedBytes), []*Storage{to}
	if from != nil {
		over = []*Storage{from, to}
	}

	if err := d.copyBytes(ctx, bytes, over...); err != nil {
		return err
	}

	if free := to.SizeBytes - d.used(to); free < bytes {
		w.log("qemu-img: error while writing at byte %d: No space left on device", max(free, 0))

		return fmt.Errorf(
			"copy failed: command '/usr/bin/qemu-img convert -p -n -O %s %s' failed: exit code 1", v.Format,
			to.pathOf(strings.TrimPrefix(v.ID, to.Name+":")),
		)
	}

	v.UsedBytes, v.Image, v.Raw = bytes, n.img, n.raw

	return nil
}

// free removes volumes; called with the lock held.
func (d *Datacentre) free(list ...*Volume) {
	for _, v := range list {
		delete(d.state.Volumes, v.key())
	}
}

// baseInUse says whether linked clones stand on the volume. LVM-thin does not know: there a base can go at any time.
func (d *Datacentre) baseInUse(v *Volume) bool {
	for _, c := range d.state.Volumes {
		if c.Base == v.ID && c.Host == v.Host && strings.Contains(c.ID, "/") {
			return true
		}
	}

	return false
}

// drivePlan is a drive that is to be: what its storage is, and what must be done for it.
type drivePlan struct {
	drive
	storage *Storage
	// size is set for a new blank disk, cloudInit for a new cloud-init drive, source for an import.
	size      int64
	cloudInit bool
	source    string
	// missing says that there is no such volume: a creation finds that out in its task.
	missing error
}

// new says that the drive needs a volume.
func (p drivePlan) new() bool { return p.storage != nil }

// plan checks a drive's value as it arrives in a request, and that the subject may use what it is made of.
func (s subject) plan(hostName string, v drive) (p drivePlan, err error) {
	p.drive = v
	m := allocation.FindStringSubmatch(v.file())

	switch {
	case v.file() == "cdrom":
		return p, s.mayAt("/", "Sys.Console")
	case m == nil:
		return p, s.planExisting(hostName, v, &p.missing)
	}

	if p.cloudInit = m[2] == "cloudinit"; !p.cloudInit {
		if err := s.mayAt("/storage/"+m[1], "Datastore.AllocateSpace"); err != nil {
			return p, err
		}
	}

	if p.storage, err = s.d.needStorage(hostName, m[1], "images"); err != nil || p.cloudInit {
		return p, err
	}

	if p.source = v.props["import-from"]; p.source != "" {
		return p, s.planSource(hostName, v.key, p.source, &p.missing)
	}

	p.size, err = ParseSize(m[2] + "G")

	return p, err
}

// planExisting checks a volume that is to be there, which missing says alone if nothing else is wrong.
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

	on, err := s.d.needStorage(hostName, store, "")

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
		return s.mayRead(hostName, id)
	}
}

var errRootPath = Refuse("Only root can pass arbitrary filesystem paths.")

// planSource checks what an import reads; missing is as planExisting's.
func (s subject) planSource(hostName, key, source string, missing *error) error {
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
		return s.mayAt(fmt.Sprintf("/vms/%d", v.VMID), "VM.Clone")
	case v.Content != "images" && v.Content != "import":
		return WrongParameter(key, "%s has wrong type '%s' - needs to be 'images' or 'import'", source, v.Content)
	default:
		return s.mayRead(hostName, source)
	}
}

// fixedSize is what EFI variables and TPM states take on a storage.
func fixedSize(key string, s *Storage) int64 {
	switch {
	case key == "tpmstate0" || s.Type == "lvmthin" || s.Type == "lvm":
		return 4 * mib
	case s.Type == "zfspool":
		return mib
	default:
		return 528 << 10
	}
}
