// Package backup keeps what a cluster cannot be made again without, encrypted with age to public keys: snapshots of
// etcd and exported machine secrets. Whoever writes a backup cannot read it.
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

// The kinds of backups, which names of files have in them.
const (
	Etcd    Kind = "etcd"    // a snapshot of etcd: the cluster's objects
	Secrets Kind = "secrets" // Talos' machine secrets: certificate authorities, tokens and the key of etcd's Secrets
)

// Survivor is what a control plane still had of etcd before a restore wiped it. It is a kind of its own for each: it is
// neither the newest snapshot of its cluster nor among those that keep counts.
func Survivor(node string) Kind { return Kind("survivor-" + node) }

// Kind is what a backup holds.
type Kind string

const (
	extension  = ".age"
	unfinished = ".partial"
	timestamp  = "20060102T150405Z"
	abandoned  = 24 * time.Hour // after which a file that a killed run left is removed
)

// Folder keeps the backups of one cluster; other clusters may have theirs in the same folder.
type Folder struct {
	Path string // made with mode 0700 where it is missing; ~/ is the user's home
	Name string // of the cluster in file names: stack and cluster
	// Origin says which cluster its backups are of; nil = they do not say.
	Origin *Origin
}

// File is a backup that was written.
type File struct {
	Path    string
	Bytes   int64    // of the encrypted file
	Removed []string // older backups that keep did not hold any more
}

// Write encrypts what content writes into a new file that only its owner can read, and then removes the oldest ones of
// the same kind beyond keep (0 = none). An error of content, or of the disk, leaves the folder as it was.
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
		to[0] = sealing{to[0], origin}
	}

	folder, err := expand(f.Path)
	if err != nil {
		return File{}, err
	}

	if err := os.MkdirAll(folder, 0o700); err != nil {
		return File{}, fmt.Errorf("unable to create the folder of backups: %w", err)
	}

	path := filepath.Join(folder, f.prefix(kind)+now.UTC().Format(timestamp)+extension)
	if _, err := os.Lstat(path); err == nil {
		return File{}, fmt.Errorf("%s exists: another backup was made in this second: wait, then repeat", path)
	}

	size, err := writeFile(path, to, content)
	if err != nil {
		return File{}, err
	}

	removed, err := f.prune(folder, kind, keep, now)

	return File{Path: path, Bytes: size, Removed: removed}, err
}

func (f Folder) prefix(kind Kind) string { return f.Name + "-" + string(kind) + "-" }

// writeFile writes the whole file, or nothing.
func writeFile(path string, to []age.Recipient, content func(io.Writer) error) (size int64, err error) {
	file, err := os.OpenFile(path+unfinished, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, fmt.Errorf("unable to write a backup: %w", err)
	}

	defer func() {
		if err != nil {
			_ = file.Close()
			_ = os.Remove(path + unfinished)
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

	if err := errors.Join(file.Close(), os.Rename(path+unfinished, path), syncFolder(filepath.Dir(path))); err != nil {
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

// prune removes the oldest backups of a kind, and what killed runs left.
func (f Folder) prune(folder string, kind Kind, keep int, now time.Time) (removed []string, err error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("unable to look for older backups: %w", err)
	}

	var finished, surplus []string

	for _, e := range entries {
		made, ours := f.Made(kind, e.Name())
		switch {
		case !ours:
		case !strings.HasSuffix(e.Name(), unfinished):
			finished = append(finished, e.Name())
		case now.Sub(made) > abandoned:
			surplus = append(surplus, e.Name())
		}
	}

	slices.Sort(finished) // by their times

	if keep > 0 && len(finished) > keep {
		surplus = append(surplus, finished[:len(finished)-keep]...)
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

// Newest returns the newest backup of a kind and when it was made; an empty path where there is none.
func (f Folder) Newest(kind Kind) (path string, made time.Time, err error) {
	folder, err := expand(f.Path)
	if err != nil {
		return "", made, err
	}

	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", made, fmt.Errorf("unable to look for backups: %w", err)
	}

	for _, e := range entries {
		at, ours := f.Made(kind, e.Name())
		if ours && !strings.HasSuffix(e.Name(), unfinished) && !at.Before(made) {
			path, made = filepath.Join(folder, e.Name()), at
		}
	}

	return path, made, nil
}

// Made tells when a backup of this cluster and kind was made, from its name.
func (f Folder) Made(kind Kind, name string) (time.Time, bool) {
	text, ours := strings.CutPrefix(strings.TrimSuffix(name, unfinished), f.prefix(kind))
	text, encrypted := strings.CutSuffix(text, extension)
	made, err := time.Parse(timestamp, text)

	return made, ours && encrypted && err == nil
}

// expand puts the user's home in the place of a leading ~/.
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
