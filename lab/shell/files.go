package shell

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"mvdan.cc/sh/v3/interp"
)

// localPath returns a host's path as a path on this computer. Devices and processes are this computer's own.
func (s *Server) localPath(dir, path string) string {
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}

	path = filepath.Clean(path)
	for _, unmapped := range []string{s.root, "/dev", "/proc"} {
		if path == unmapped || strings.HasPrefix(path, unmapped+"/") {
			return path
		}
	}

	return filepath.Join(s.root, path)
}

// hostPath is the inverse: it returns the path on the host.
func (s *Server) hostPath(path string) string {
	if rest, found := strings.CutPrefix(path, s.root+"/"); found {
		return "/" + rest
	}

	return path
}

func (s *Server) open(ctx context.Context, path string, flag int, perm fs.FileMode) (io.ReadWriteCloser, error) {
	name := s.localPath(interp.HandlerCtx(ctx).Dir, path)
	if err := s.openError(name, flag); err != nil {
		return nil, err
	}

	file, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}

	if strings.HasPrefix(name, s.localPath("/", "/sys")+"/") && flag&(os.O_WRONLY|os.O_RDWR) != 0 {
		return kernelParameterFile{file, s}, nil
	}

	return file, nil
}

// kernelParameterFile is a kernel parameter, which takes effect when the file is closed.
type kernelParameterFile struct {
	*os.File

	s *Server
}

func (p kernelParameterFile) Close() error {
	err := p.File.Close()
	p.s.applyKernelParameters()

	return err
}

// applyKernelParameters updates the model from the kernel parameters' files.
func (s *Server) applyKernelParameters() {
	if highest, lowest, ok := s.system.ReadARC(s.currentHost()); ok {
		_ = s.dc.SetARC(s.host, highest, lowest)
	}
}

func (s *Server) stat(ctx context.Context, path string, follow bool) (fs.FileInfo, error) {
	name := s.localPath(interp.HandlerCtx(ctx).Dir, path)
	if follow {
		return os.Stat(name)
	}

	return os.Lstat(name)
}

func (s *Server) access(ctx context.Context, path string, mode interp.AccessMode) error {
	return interp.DefaultAccessHandler()(ctx, s.localPath(interp.HandlerCtx(ctx).Dir, path), mode)
}

// readDir lists a folder of the host. The interpreter expands a pattern from the top: for one that begins with
// HOST_ROOT, the folders above the root must exist, but their content does not matter.
func (s *Server) readDir(ctx context.Context, path string) ([]fs.DirEntry, error) {
	list, err := os.ReadDir(s.localPath(interp.HandlerCtx(ctx).Dir, path))
	if errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(s.root, filepath.Clean(path)+"/") {
		return nil, nil
	}

	return list, err
}

// callHandler keeps the working directory inside the root, so that programs can be started in it. umask, which the
// interpreter lacks, has no effect: only the owner has access to the root folder.
func (s *Server) callHandler(_ context.Context, words []string) ([]string, error) {
	if len(words) == 2 && words[0] == "umask" {
		return []string{":"}, nil
	}

	if len(words) == 2 && (words[0] == "cd" || words[0] == "pushd") && filepath.IsAbs(words[1]) {
		return []string{words[0], s.localPath("/", words[1])}, nil
	}

	return words, nil
}
