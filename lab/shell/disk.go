package shell

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"mvdan.cc/sh/v3/interp"

	"talos-proxmox/lab/datacentre"
)

// strerror returns a system error's text as Debian's programs print it.
func strerror(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return "No space left on device"
	case errors.Is(err, syscall.EROFS):
		return "Read-only file system"
	case errors.Is(err, fs.ErrPermission):
		return "Permission denied"
	default:
		return err.Error()
	}
}

// diskError returns why the root file system cannot be written, or nil.
func (s *Server) diskError() error {
	switch s.currentHost().Disk {
	case datacentre.DiskFull:
		return syscall.ENOSPC
	case datacentre.DiskReadOnly:
		return syscall.EROFS
	default:
		return nil
	}
}

// isOnRootFS reports whether a path is on the root file system, and not on one of the running system.
func (s *Server) isOnRootFS(dir, path string) bool {
	rest, inside := strings.CutPrefix(s.localPath(dir, path), s.root+"/")
	top, _, _ := strings.Cut(rest, "/")

	return inside && !slices.Contains([]string{"dev", "proc", "run", "sys", "tmp"}, top)
}

// openError returns the disk's error for a file that is opened for writing.
func (s *Server) openError(name string, flag int) error {
	if err := s.diskError(); err != nil && flag&(os.O_WRONLY|os.O_RDWR|os.O_CREATE) != 0 && s.isOnRootFS("/", name) {
		return &os.PathError{Op: "open", Path: s.hostPath(name), Err: err}
	}

	return nil
}

// checkDiskWrites fails a program of this computer that would write to a faulty disk, which the program itself does not
// notice.
func (s *Server) checkDiskWrites(hc interp.HandlerContext, words []string) error {
	err := s.diskError()
	if err == nil {
		return nil
	}

	// A full disk still allows renaming and removing.
	writers := []string{"cp", "dd", "install", "ln", "mkdir", "mktemp", "tee", "touch", "truncate"}
	if s.currentHost().Disk == datacentre.DiskReadOnly {
		writers = append(writers, "chmod", "chown", "mv", "rm", "rmdir")
	}

	name := filepath.Base(words[0])
	inPlace := name == "sed" && slices.ContainsFunc(
		words, func(w string) bool { return strings.HasPrefix(w, "-i") || strings.HasPrefix(w, "--in-place") },
	)

	if !inPlace && !slices.Contains(writers, name) {
		return nil
	}

	files := slices.DeleteFunc(slices.Clone(words[1:]), func(w string) bool { return strings.HasPrefix(w, "-") })
	if name == "cp" || name == "install" || name == "ln" || name == "mv" {
		files = files[max(0, len(files)-1):]
	}

	for _, file := range files {
		_, missing := os.Stat(s.localPath(hc.Dir, file))

		switch {
		case !s.isOnRootFS(hc.Dir, strings.TrimPrefix(file, "of=")):
		case name == "mkdir" && missing == nil, name == "rm" && missing != nil, inPlace && missing != nil:
		default:
			fmt.Fprintf(hc.Stderr, "%s: cannot write '%s': %s\n", name, file, strerror(err)) //nolint:errcheck

			return interp.ExitStatus(statusFailed)
		}
	}

	return nil
}

// withWritableDisk calls a function that writes to the disk, or returns the disk's error.
func (s *Server) withWritableDisk(do func() error) error {
	if err := s.diskError(); err != nil {
		return err
	}

	return do()
}
