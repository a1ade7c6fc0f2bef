package datacentre

import (
	"os"
	"path"
	"path/filepath"
	"strings"
)

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
	d.mu.Mutex.Lock()
	defer d.mu.Mutex.Unlock()

	if s := d.storageAt(hostName, file); s != nil {
		return d.room(s, bytes)
	}

	return nil
}

// VolumeBytes returns the bytes of a file on a host's storage, such as an ISO.
func (d *Datacentre) VolumeBytes(hostName, id string) ([]byte, error) {
	d.mu.Mutex.Lock()
	defer d.mu.Mutex.Unlock()

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
