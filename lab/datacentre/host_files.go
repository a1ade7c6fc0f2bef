package datacentre

import (
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// folders are where files of a content type lie on a directory storage, of those that a host's programs write there.
var folders = map[string]string{"iso": "template/iso", "import": "import", "snippets": "snippets"}

// Rescan takes notice of files that a host's own programs have put on its directory storages, or removed from them:
// Proxmox has no list of files beside the folders themselves.
func (d *Datacentre) Rescan(hostName string) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	h := d.host(hostName)
	if d.files == nil || h == nil {
		return nil
	}

	for _, s := range h.storages {
		if s.Path == "" || s.Shared {
			continue
		}

		for _, content := range slices.Sorted(maps.Keys(folders)) {
			if err := d.rescan(s, content); err != nil {
				return err
			}
		}
	}

	return nil
}

// rescan is called with the lock held.
func (d *Datacentre) rescan(s *storage, content string) error {
	there, err := d.files.ListFiles(s.host, path.Join(s.Path, folders[content]))
	if err != nil {
		return err
	}

	prefix := s.Name + ":" + content + "/"

	for key, v := range d.state.Volumes {
		name, ours := strings.CutPrefix(v.ID, prefix)
		if _, still := there[name]; ours && v.Host == s.host && v.OfHost && !still {
			delete(d.state.Volumes, key)
			d.changed()
		}
	}

	for name, size := range there {
		old := d.state.Volumes[volumeKey(s.host, prefix+name)]
		if (old != nil && (!old.OfHost || old.SizeBytes == size)) || !extensions[content].MatchString(name) {
			continue
		}

		v := &volume{OfHost: true, Volume: Volume{
			ID: prefix + name, Host: s.host, Storage: s.Name, Content: content, Format: fileFormat(content, name),
			SizeBytes: size, UsedBytes: size, Created: time.Now(),
		}}
		d.state.Volumes[v.key()] = v
		d.changed()
	}

	return nil
}

// RoomFor refuses a file that a host's program writes to a directory storage without the space for it.
func (d *Datacentre) RoomFor(hostName, file string, bytes int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	if h := d.host(hostName); h != nil {
		for _, s := range h.storages {
			if s.Path != "" && strings.HasPrefix(file, s.Path+"/") {
				return d.room(s, bytes)
			}
		}
	}

	return nil
}

// VolumeBytes returns the bytes of a file on a host's storage, such as an ISO.
func (d *Datacentre) VolumeBytes(hostName, id string) ([]byte, error) {
	d.mu.Lock()
	v := d.findVolume(hostName, id)
	d.mu.Unlock()

	if v == nil {
		return nil, Refuse("volume '%s' does not exist", id)
	}

	return d.bytes(v)
}

// bytes are what a file consists of: those that a program of the host wrote lie in its file system alone.
func (d *Datacentre) bytes(v *volume) ([]byte, error) {
	if !v.OfHost {
		return v.Raw, nil
	}

	file, err := d.VolumePath(v.Host, v.ID)
	if err != nil {
		return nil, err
	}

	return d.files.ReadFile(v.Host, file)
}
