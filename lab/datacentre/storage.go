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

// StorageOptions is a storage of a host.
type StorageOptions struct {
	// Name is the storage's id, such as "local-lvm".
	Name string
	// Type is PVE's: "dir", "lvmthin", "zfspool", "nfs", …
	Type string
	// Content lists what may lie on it: images, rootdir, iso, vztmpl, backup, snippets, import.
	Content []string
	// SizeBytes is the capacity.
	SizeBytes int64
	// Path is the folder of a directory storage, without which its volumes have no path of their own.
	Path     string
	Disabled bool
}

// DefaultStorages are those of a fresh installation on LVM, with a ZFS pool beside it.
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

// Storage is a storage as a host sees it.
type Storage struct {
	StorageOptions
	Host      string
	UsedBytes int64
	root      string // of the host
}

// key tells storages apart: no two hosts share one.
func (s *Storage) key() string { return s.Host + "/" + s.Name }

// need is the storage's answer to a use for which it is not made: PVE's words for each case.
func (s *Storage) need(content string) error {
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

// needStorage finds a storage of a host that takes the content; any with an empty content.
func (d *Datacentre) needStorage(hostName, name, content string) (*Storage, error) {
	s, err := d.findStorage(hostName, name)
	if err == nil {
		err = s.need(content)
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

// storages are those of a host, without what is used of them.
func (d *Datacentre) storages(h *HostOptions) []*Storage {
	var list []*Storage
	for _, s := range h.Storages {
		list = append(list, &Storage{StorageOptions: s, Host: h.Name, root: h.Root})
	}

	return list
}

// Storages returns the storages of a host.
func (d *Datacentre) Storages(hostName string) []Storage {
	defer d.reading()()

	list := []Storage{}

	if h := d.host(hostName); h != nil {
		for _, s := range d.storages(h) {
			s.UsedBytes = d.used(s)
			list = append(list, *s)
		}
	}

	return list
}

// Storage returns one storage of a host.
func (d *Datacentre) Storage(hostName, name string) (Storage, error) {
	defer d.reading()()

	s, err := d.findStorage(hostName, name)
	if err != nil {
		return Storage{}, err
	}

	s.UsedBytes = d.used(s)

	return *s, nil
}

// used is what a storage has given away; called with the lock held.
func (d *Datacentre) used(s *Storage) int64 {
	if d.anyFault(func(f *Fault) bool { return f.Full == s.Name && (f.Host == "" || f.Host == s.Host) }) {
		return s.SizeBytes
	}

	var sum int64

	for _, v := range d.contents(s) {
		sum += v.UsedBytes
	}

	return sum
}

// room refuses a file that does not fit; called with the lock held.
func (d *Datacentre) room(s *Storage, bytes int64) error {
	if d.used(s)+bytes <= s.SizeBytes {
		return nil
	}

	return Refuse("No space left on device")
}

// roomForDisk refuses a disk where nothing is left, in the words of the storage's own tool: disks are thin, and take no
// space before they are written; called with the lock held.
func (d *Datacentre) roomForDisk(s *Storage, name string) error {
	if d.used(s) < s.SizeBytes {
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

// folders are where the files of a content type lie on a directory storage. Proxmox has no list of files beside them.
var folders = map[string]string{
	"iso": "template/iso", "vztmpl": "template/cache", "import": "import", "snippets": "snippets",
}

// hostPath is where a path of a host lies on this machine.
func (d *Datacentre) hostPath(hostName, file string) string {
	return filepath.Join(d.host(hostName).Root, filepath.Clean("/"+file))
}

// file returns a file of a storage, nil where there is none.
func (s *Storage) file(kind, name string) *Volume {
	if s.Path == "" || folders[kind] == "" || !extensions[kind].MatchString(name) {
		return nil
	}

	info, err := os.Stat(filepath.Join(s.root, s.Path, folders[kind], name))
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}

	return &Volume{
		ID: s.Name + ":" + kind + "/" + name, Host: s.Host, Storage: s.Name, Content: kind,
		Format: fileFormat(kind, name), SizeBytes: info.Size(), UsedBytes: info.Size(), Created: info.ModTime(),
	}
}

// contents are the disks and files of a storage; called with the lock held.
func (d *Datacentre) contents(s *Storage) []*Volume {
	var list []*Volume

	for _, v := range d.state.Volumes {
		if v.Host == s.Host && v.Storage == s.Name {
			list = append(list, v)
		}
	}

	for kind, folder := range folders {
		entries, _ := os.ReadDir(filepath.Join(s.root, s.Path, folder)) //nolint:errcheck // or none

		for _, entry := range entries {
			if v := s.file(kind, entry.Name()); v != nil {
				list = append(list, v)
			}
		}
	}

	return list
}

// storageAt is the directory storage that a path of a host is on, nil where it is on none.
func (d *Datacentre) storageAt(hostName, file string) *Storage {
	for _, s := range d.storages(d.host(hostName)) {
		if s.Path != "" && strings.HasPrefix(path.Clean(file), s.Path+"/") {
			return s
		}
	}

	return nil
}

// RoomFor refuses a file that a host's program writes to a directory storage without the space for it.
func (d *Datacentre) RoomFor(hostName, file string, bytes int64) error {
	defer d.reading()()

	if s := d.storageAt(hostName, file); s != nil {
		return d.room(s, bytes)
	}

	return nil
}

// VolumeBytes returns the bytes of a file on a host's storage, such as an ISO.
func (d *Datacentre) VolumeBytes(hostName, id string) ([]byte, error) {
	defer d.reading()()

	v := d.findVolume(hostName, id)
	if v == nil {
		return nil, Refuse("volume '%s' does not exist", id)
	}

	return d.bytes(v)
}

// bytes are those of a file, or of a disk that holds no image.
func (d *Datacentre) bytes(v *Volume) ([]byte, error) {
	if v.Content == "images" {
		return v.Raw, nil
	}

	file, err := d.VolumePath(v.Host, v.ID)
	if err != nil {
		return nil, err
	}

	return os.ReadFile(d.hostPath(v.Host, file))
}
