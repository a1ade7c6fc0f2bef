package datacentre

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// GiB is a gibibyte in bytes.
const GiB = int64(1) << 30

// StorageOptions describes a storage of a host.
type StorageOptions struct {
	// Name is the storage's id, such as "local-lvm".
	Name string
	// Type is PVE's storage type: "dir", "lvmthin", "zfspool", "nfs", …
	Type string
	// Content lists the content types: images, rootdir, iso, vztmpl, backup, snippets, import.
	Content []string
	// SizeBytes is the capacity.
	SizeBytes int64
	// Path is the folder of a directory storage; volumes of other storages have no path in it.
	Path     string
	Disabled bool
	// Shared: all hosts have the same volumes, such as those of Ceph; for disks only.
	Shared bool
}

// DefaultStorages returns those of a fresh installation on LVM, plus a ZFS pool.
func DefaultStorages() []StorageOptions {
	return []StorageOptions{
		{
			Name:      "local",
			Type:      "dir",
			Path:      "/var/lib/vz",
			Content:   []string{"backup", "import", "iso", "snippets", "vztmpl"},
			SizeBytes: 100 * GiB,
		},
		{Name: "local-lvm", Type: "lvmthin", Content: []string{"images", "rootdir"}, SizeBytes: 900 * GiB},
		{Name: "local-zfs", Type: "zfspool", Content: []string{"images", "rootdir"}, SizeBytes: 900 * GiB},
	}
}

// Storage is a storage of a host, with its usage.
type Storage struct {
	StorageOptions
	Host      string // empty = shared, see [Volume.Host]
	UsedBytes int64
	root      string // of the host
}

// key is unique.
func (s *Storage) key() string { return s.Host + "/" + s.Name }

// checkContent refuses a disabled storage, or a content type that it does not have, with PVE's message for each case.
func (s *Storage) checkContent(content string) error {
	switch {
	case s.Disabled:
		return Refuse("storage '%s' is disabled", s.Name)
	case content == "" || slices.Contains(s.Content, content):
		return nil
	case content == "images":
		return WrongParameter("storage", "storage '%s' does not support vm images", s.Name)
	default:
		return Refuse("storage '%s' is not configured for content-type '%s'", s.Name, content)
	}
}

// lookupStorage returns an enabled storage of a host with a content type; an empty type matches all.
func (d *Datacentre) lookupStorage(hostName, name, content string) (*Storage, error) {
	s, err := d.findStorage(hostName, name)
	if err == nil {
		err = s.checkContent(content)
	}

	return s, err
}

func (d *Datacentre) findStorage(hostName, name string) (*Storage, error) {
	known := false

	for _, h := range d.hosts {
		for _, s := range d.storages(h) {
			if s.Name == name && h.Name == hostName {
				return s, nil
			}

			known = known || s.Name == name
		}
	}

	if known {
		return nil, Refuse("storage '%s' is not available on node '%s'", name, hostName)
	}

	return nil, Refuse("storage '%s' does not exist", name)
}

// AddStorage adds a directory storage, or a shared one, to all hosts; RemoveStorage removes it. Hosts use its folder as
// root, wherever it is.
func (d *Datacentre) AddStorage(o StorageOptions) error {
	defer d.lockWrite()()

	for _, h := range d.hosts {
		if _, err := d.findStorage(h.Name, o.Name); err == nil {
			return Refuse("create storage failed: storage ID '%s' already defined", o.Name)
		}
	}

	d.state.Storages = append(d.state.Storages, o)

	return nil
}

// RemoveStorage removes a storage of AddStorage, but no file.
func (d *Datacentre) RemoveStorage(name string) error {
	defer d.lockWrite()()

	isNamed := func(s StorageOptions) bool { return s.Name == name }
	if !slices.ContainsFunc(d.state.Storages, isNamed) {
		return Refuse("delete storage failed: storage '%s' does not exist", name)
	}

	d.state.Storages = slices.DeleteFunc(d.state.Storages, isNamed)

	return nil
}

// storages returns a host's storages without their usage.
func (d *Datacentre) storages(h *HostOptions) []*Storage {
	var list []*Storage

	for _, s := range slices.Concat(h.Storages, d.state.Storages) {
		host := h.Name
		if s.Shared {
			host = ""
		}

		list = append(list, &Storage{StorageOptions: s, Host: host, root: h.Root})
	}

	return list
}

// Storages returns the storages of a host.
func (d *Datacentre) Storages(hostName string) []Storage {
	defer d.lockRead()()

	list := []Storage{}

	if h := d.host(hostName); h != nil {
		for _, s := range d.storages(h) {
			s.UsedBytes, s.Host = d.usedBytes(s), hostName
			list = append(list, *s)
		}
	}

	return list
}

// Storage returns one storage of a host.
func (d *Datacentre) Storage(hostName, name string) (Storage, error) {
	defer d.lockRead()()

	s, err := d.findStorage(hostName, name)
	if err != nil {
		return Storage{}, err
	}

	s.UsedBytes, s.Host = d.usedBytes(s), hostName

	return *s, nil
}

// usedBytes returns the used bytes of a storage; it requires the lock.
func (d *Datacentre) usedBytes(s *Storage) int64 {
	if d.hasFault(func(f *Fault) bool { return f.Full == s.Name && (f.Host == "" || f.Host == s.Host) }) {
		return s.SizeBytes
	}

	var sum int64

	for _, v := range d.volumesOn(s) {
		sum += v.UsedBytes
	}

	return sum
}

// checkSpace refuses a file without the space for it; it requires the lock.
func (d *Datacentre) checkSpace(s *Storage, bytes int64) error {
	if d.usedBytes(s)+bytes <= s.SizeBytes {
		return nil
	}

	return Refuse("No space left on device")
}

// checkDiskSpace refuses a disk on a full storage, with the message of the storage's tool. Disks are thin: they occupy
// no space before they are written. It requires the lock.
func (d *Datacentre) checkDiskSpace(s *Storage, name string) error {
	if d.usedBytes(s) < s.SizeBytes {
		return nil
	}

	switch s.Type {
	case "lvmthin":
		return Refuse(
			"lvcreate 'pve/%s' error:   Cannot create new thin volume, free space in thin pool pve/data reached threshold.",
			name,
		)
	case "zfspool":
		return Refuse("zfs error: cannot create '%s/%s': out of space", s.Name, name)
	default:
		return Refuse("unable to create image: qemu-img: %s/images/%s: No space left on device", s.Path, name)
	}
}

// splitVolume splits "storage:name".
func splitVolume(id string) (store, name string, err error) {
	store, name, ok := strings.Cut(id, ":")
	if !ok || store == "" || name == "" {
		return "", "", Refuse("unable to parse volume ID '%s'", id)
	}

	return store, name, nil
}

// contentFolders are the folders of content types on a directory storage. Files in them are volumes.
var contentFolders = map[string]string{
	"iso": "template/iso", "vztmpl": "template/cache", "import": "import", "snippets": "snippets",
}

// hostPath returns a host's path as a path on this computer.
func (d *Datacentre) hostPath(hostName, file string) string {
	return filepath.Join(d.host(hostName).Root, filepath.Clean("/"+file))
}

// findFile returns a file of a storage, or nil.
func (s *Storage) findFile(kind, name string) *Volume {
	if s.Path == "" || contentFolders[kind] == "" || !filePatterns[kind].MatchString(name) {
		return nil
	}

	info, err := os.Stat(filepath.Join(s.root, s.Path, contentFolders[kind], name))
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}

	return &Volume{
		ID: s.Name + ":" + kind + "/" + name, Host: s.Host, Storage: s.Name, Content: kind,
		Format: fileFormat(kind, name), SizeBytes: info.Size(), UsedBytes: info.Size(), Created: info.ModTime(),
	}
}

// volumesOn returns the disks and files on a storage; it requires the lock.
func (d *Datacentre) volumesOn(s *Storage) []*Volume {
	var list []*Volume

	for _, v := range d.state.Volumes {
		if v.Host == s.Host && v.Storage == s.Name {
			list = append(list, v)
		}
	}

	for kind, folder := range contentFolders {
		entries, _ := os.ReadDir(filepath.Join(s.root, s.Path, folder)) //nolint:errcheck // or none

		for _, entry := range entries {
			if v := s.findFile(kind, entry.Name()); v != nil {
				list = append(list, v)
			}
		}
	}

	return list
}

// storageAt returns the directory storage that contains a path of a host, or nil.
func (d *Datacentre) storageAt(hostName, file string) *Storage {
	for _, s := range d.storages(d.host(hostName)) {
		if s.Path != "" && strings.HasPrefix(path.Clean(file), s.Path+"/") {
			return s
		}
	}

	return nil
}

// CheckSpace refuses a file that a host's program writes to a directory storage without the space for it.
func (d *Datacentre) CheckSpace(hostName, file string, bytes int64) error {
	defer d.lockRead()()

	if s := d.storageAt(hostName, file); s != nil {
		return d.checkSpace(s, bytes)
	}

	return nil
}

// VolumeBytes returns the content of a file on a host's storage, such as an ISO.
func (d *Datacentre) VolumeBytes(hostName, id string) ([]byte, error) {
	defer d.lockRead()()

	v := d.findVolume(hostName, id)
	if v == nil {
		return nil, Refuse("volume '%s' does not exist", id)
	}

	return d.volumeBytes(v)
}

// volumeBytes returns the content of a file, or of a disk without an image.
func (d *Datacentre) volumeBytes(v *Volume) ([]byte, error) {
	if v.Content == "images" {
		return v.Raw, nil
	}

	file, err := d.VolumePath(v.Host, v.ID)
	if err != nil {
		return nil, err
	}

	return os.ReadFile(d.hostPath(v.Host, file))
}
