package shell

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"mvdan.cc/sh/v3/interp"

	"talos-proxmox/lab/datacentre"
)

// diskError is why nothing can be written to the root file system, nil while it can.
func (s *Server) diskError() error {
	switch s.this().Disk {
	case datacentre.DiskFull:
		return syscall.ENOSPC
	case datacentre.DiskReadOnly:
		return syscall.EROFS
	default:
		return nil
	}
}

// onDisk says whether a path is on the root file system: that of a running system is not.
func (s *Server) onDisk(dir, path string) bool {
	rest, inside := strings.CutPrefix(s.inside(dir, path), s.root+"/")
	top, _, _ := strings.Cut(rest, "/")

	return inside && !slices.Contains([]string{"dev", "proc", "run", "sys", "tmp"}, top)
}

// openFault is the error of opening a file for writing.
func (s *Server) openFault(name string, flag int) error {
	if err := s.diskError(); err != nil && flag&(os.O_WRONLY|os.O_RDWR|os.O_CREATE) != 0 && s.onDisk("/", name) {
		return &os.PathError{Op: "open", Path: s.outside(name), Err: err}
	}

	return nil
}

// commandFault is how this machine's programs end that would write to a disk which does not take it: they know nothing
// of it.
func (s *Server) commandFault(hc interp.HandlerContext, words []string) error {
	err := s.diskError()
	if err == nil {
		return nil
	}

	// On a full disk names may still be changed and removed.
	writers := []string{"cp", "dd", "install", "ln", "mkdir", "mktemp", "tee", "touch", "truncate"}
	if s.this().Disk == datacentre.DiskReadOnly {
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
		_, missing := os.Stat(s.inside(hc.Dir, file))

		switch {
		case !s.onDisk(hc.Dir, strings.TrimPrefix(file, "of=")):
		case name == "mkdir" && missing == nil, name == "rm" && missing != nil, inPlace && missing != nil:
		default:
			fmt.Fprintf(hc.Stderr, "%s: cannot write '%s': %s\n", name, file, reason(err)) //nolint:errcheck

			return interp.ExitStatus(statusFailed)
		}
	}

	return nil
}

// write does something that writes to the disk, if that takes it.
func (s *Server) write(do func() error) error {
	if err := s.diskError(); err != nil {
		return err
	}

	return do()
}
