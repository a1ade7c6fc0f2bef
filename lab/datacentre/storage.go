package datacentre

import (
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
	known := false

	for _, h := range d.hosts {
		for _, s := range d.storages(h) {
			if s.Name == name && h.Name == hostName {
				return s, s.need(content)
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
	d.mu.Mutex.Lock()
	defer d.mu.Mutex.Unlock()

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
	if err := d.needHost(hostName); err != nil {
		return Storage{}, err
	}

	for _, s := range d.Storages(hostName) {
		if s.Name == name {
			return s, nil
		}
	}

	_, err := d.needStorage(hostName, name, "")

	return Storage{}, err
}

// used is what a storage has given away; called with the lock held.
func (d *Datacentre) used(s *Storage) int64 {
	if d.filled(s) {
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

	return errNoSpace
}

var errNoSpace = Refuse("No space left on device")

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
