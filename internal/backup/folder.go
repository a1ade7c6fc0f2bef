// Package backup stores what is needed to recreate a cluster, encrypted with age to public keys: snapshots of etcd and
// exported machine secrets. Whoever writes a backup cannot read it.
package backup

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"filippo.io/age"
)

// The kinds of backups, which are part of file names.
const (
	Etcd    Kind = "etcd"    // a snapshot of etcd: the cluster's objects
	Secrets Kind = "secrets" // Talos' machine secrets: certificate authorities, tokens and the key of etcd's Secrets
)

// Survivor is the kind of the etcd data that a control plane still had before a restore wiped it. Each node has its own
// kind, so that its data is neither the newest snapshot of the cluster nor counted by keep.
func Survivor(node string) Kind { return Kind("survivor-" + node) }

// Kind is what a backup contains.
type Kind string

const (
	extension     = ".age"
	partialSuffix = ".partial"
	timestamp     = "20060102T150405Z"
	partialMaxAge = 24 * time.Hour // after which the file of a killed run is removed
)

// Folder stores the backups of one cluster; other clusters may use the same folder.
type Folder struct {
	Path string // created with mode 0700 if missing; ~/ is the user's home
	Name string // of the cluster in file names: stack and cluster, which is also that of other stacks' clusters
	ID   string // of the cluster in file names, see [ClusterID]; empty = that of Origin, or of any cluster
	// Origin identifies the cluster in its backups; nil = backups without origin.
	Origin *Origin
}

// File is a new backup.
type File struct {
	Path    string
	Bytes   int64    // size of the encrypted file
	Removed []string // older backups beyond keep
}

// Write encrypts what content writes into a new file that only its owner can read. It then removes the oldest backups
// of the same kind beyond keep (0 = none). If content or the disk fails, the folder is unchanged.
func (f Folder) Write(kind Kind, now time.Time, recipients []string, keep int, content func(io.Writer) error) (
	File, error,
) {
	to, err := Recipients(recipients)
	if err != nil {
		return File{}, err
	}

	if f.Origin != nil {
		origin := *f.Origin
		origin.Cluster, origin.Time = f.Name, now.UTC()
		to[0] = originRecipient{to[0], origin}
	}

	folder, err := expand(f.Path)
	if err != nil {
		return File{}, err
	}

	if err := os.MkdirAll(folder, 0o700); err != nil {
		return File{}, fmt.Errorf("unable to create the folder of backups: %w", err)
	}

	path := filepath.Join(folder, f.prefix(kind)+now.UTC().Format(timestamp)+f.suffix()+extension)
	if _, err := os.Lstat(path); err == nil {
		return File{}, fmt.Errorf("%s exists: another backup was written in this second: wait, then repeat", path)
	}

	size, err := writeFile(path, to, content)
	if err != nil {
		return File{}, err
	}

	removed, err := f.prune(filepath.Base(path), kind, keep, now)

	return File{Path: path, Bytes: size, Removed: removed}, err
}

func (f Folder) prefix(kind Kind) string { return f.Name + "-" + string(kind) + "-" }

// suffix follows the time in the names of new files.
func (f Folder) suffix() string {
	if id := f.id(); id != "" {
		return "-" + id
	}

	return ""
}

func (f Folder) id() string {
	if f.ID == "" && f.Origin != nil {
		return f.Origin.ID
	}

	return f.ID
}

// writeFile writes the file atomically.
func writeFile(path string, to []age.Recipient, content func(io.Writer) error) (size int64, err error) {
	file, err := os.OpenFile(path+partialSuffix, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, fmt.Errorf("unable to write a backup: %w", err)
	}

	defer func() {
		if err != nil {
			_ = file.Close()
			_ = os.Remove(path + partialSuffix)
		}
	}()

	encrypted, err := age.Encrypt(file, to...)
	if err != nil {
		return 0, fmt.Errorf("unable to encrypt a backup: %w", err)
	}

	if err := content(encrypted); err != nil {
		return 0, err
	}

	if err := errors.Join(encrypted.Close(), file.Sync()); err != nil {
		return 0, fmt.Errorf("unable to write a backup: %w", err)
	}

	info, err := file.Stat()
	if err != nil {
		return 0, fmt.Errorf("unable to write a backup: %w", err)
	}

	if err := errors.Join(file.Close(), os.Rename(path+partialSuffix, path), syncFolder(filepath.Dir(path))); err != nil {
		return 0, fmt.Errorf("unable to write a backup: %w", err)
	}

	return info.Size(), nil
}

func syncFolder(path string) error {
	folder, err := os.Open(path) //nolint:gosec // the user's own folder
	if err != nil {
		return err
	}

	return errors.Join(folder.Sync(), folder.Close())
}

// prune removes the oldest backups of a kind beyond keep, and partial files of killed runs. It keeps the file that was
// just written, whatever its time, and neither counts nor removes files with a later time: a clock was wrong then, or
// is now.
func (f Folder) prune(written string, kind Kind, keep int, now time.Time) (removed []string, err error) {
	folder, err := expand(f.Path)
	if err != nil {
		return nil, err
	}

	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("unable to look for older backups: %w", err)
	}

	var earlier, surplus []string

	for _, e := range entries {
		created, isOwn := f.TimeOf(kind, e.Name())
		switch {
		case !isOwn || e.Name() == written:
		case strings.HasSuffix(e.Name(), partialSuffix):
			if now.Sub(created) > partialMaxAge {
				surplus = append(surplus, e.Name())
			}
		case !created.After(now) && f.isProvenOwn(filepath.Join(folder, e.Name())):
			earlier = append(earlier, e.Name())
		}
	}

	slices.Sort(earlier) // by their times, which follow the same prefix

	if keep > 0 && len(earlier) > keep-1 {
		surplus = append(surplus, earlier[:len(earlier)-(keep-1)]...)
	}

	for _, name := range surplus {
		path := filepath.Join(folder, name)
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return removed, fmt.Errorf("unable to remove an old backup: %w", err)
		}

		removed = append(removed, path)
	}

	return removed, nil
}

// Found are the backups of a cluster and kind.
type Found struct {
	Newest  string // path, or address; empty = none
	Created time.Time
	// Future is one with a time that has not come yet; empty = none. Its time is wrong, or this computer's.
	Future string
}

// clockSkew is how much later than now the time of a backup may be: clocks of computers differ.
const clockSkew = 10 * time.Minute

// Add counts a backup by its time.
func (f *Found) Add(backup string, created, now time.Time) {
	switch {
	case created.After(now.Add(clockSkew)):
		f.Future = backup
	case !created.Before(f.Created):
		f.Newest, f.Created = backup, created
	}
}

// Newest returns the newest backup of a kind.
func (f Folder) Newest(kind Kind, now time.Time) (found Found, err error) {
	folder, err := expand(f.Path)
	if err != nil {
		return found, err
	}

	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return found, fmt.Errorf("unable to look for backups: %w", err)
	}

	for _, e := range entries {
		path := filepath.Join(folder, e.Name())

		at, isOwn := f.TimeOf(kind, e.Name())
		if isOwn && !strings.HasSuffix(e.Name(), partialSuffix) && f.isPerhapsOwn(path) {
			found.Add(path, at, now)
		}
	}

	return found, nil
}

// TimeOf parses the time in the name of a backup of this cluster and kind; false for other names. Names of earlier
// versions have no id.
func (f Folder) TimeOf(kind Kind, name string) (time.Time, bool) {
	text, isOwn := strings.CutPrefix(strings.TrimSuffix(name, partialSuffix), f.prefix(kind))
	text, hasExtension := strings.CutSuffix(text, extension)
	text, id, named := strings.Cut(text, "-")
	created, err := time.Parse(timestamp, text)

	return created, isOwn && hasExtension && err == nil && (!named || f.id() == "" || id == f.id())
}

// isPerhapsOwn reports whether the origin in a file does not say that it is another cluster's.
func (f Folder) isPerhapsOwn(path string) bool {
	id := fileID(path)

	return id == "" || f.id() == "" || id == f.id()
}

// isProvenOwn reports whether a file with this cluster's name is not another cluster's of the same name: by its origin,
// or if no other stack and cluster can have the name.
func (f Folder) isProvenOwn(path string) bool {
	return f.isPerhapsOwn(path) && (fileID(path) != "" || strings.Count(f.Name, "-") <= 1)
}

// expand replaces a leading ~/ with the user's home.
func expand(path string) (string, error) {
	rest, inHome := strings.CutPrefix(path, "~/")
	if !inHome {
		return path, nil
	}

	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("unable to find the folder of backups %s: %w", path, err)
	}

	return filepath.Join(home, rest), nil
}
