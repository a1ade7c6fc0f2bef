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

// inside returns where a path of the host lies on this machine. Devices and processes are this machine's own.
func (s *Server) inside(dir, path string) string {
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}

	path = filepath.Clean(path)
	for _, own := range []string{s.root, "/dev", "/proc"} {
		if path == own || strings.HasPrefix(path, own+"/") {
			return path
		}
	}

	return filepath.Join(s.root, path)
}

// outside is the inverse: the path as the host itself knows it.
func (s *Server) outside(path string) string {
	if rest, found := strings.CutPrefix(path, s.root+"/"); found {
		return "/" + rest
	}

	return path
}

func (s *Server) open(ctx context.Context, path string, flag int, perm fs.FileMode) (io.ReadWriteCloser, error) {
	name := s.inside(interp.HandlerCtx(ctx).Dir, path)
	if err := s.openFault(name, flag); err != nil {
		return nil, err
	}

	file, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}

	if strings.HasPrefix(name, s.inside("/", "/sys")+"/") && flag&(os.O_WRONLY|os.O_RDWR) != 0 {
		return parameter{file, s}, nil
	}

	return file, nil
}

// parameter is a file of the kernel: what is written takes effect when it is closed.
type parameter struct {
	*os.File

	s *Server
}

func (p parameter) Close() error {
	err := p.File.Close()
	p.s.applyKernelParameters()

	return err
}

// applyKernelParameters tells the model of kernel parameters that were written.
func (s *Server) applyKernelParameters() {
	if highest, lowest, ok := s.system.ReadARC(s.this()); ok {
		_ = s.dc.SetARC(s.host, highest, lowest)
	}
}

func (s *Server) stat(ctx context.Context, path string, follow bool) (fs.FileInfo, error) {
	name := s.inside(interp.HandlerCtx(ctx).Dir, path)
	if follow {
		return os.Stat(name)
	}

	return os.Lstat(name)
}

func (s *Server) access(ctx context.Context, path string, mode interp.AccessMode) error {
	return interp.DefaultAccessHandler()(ctx, s.inside(interp.HandlerCtx(ctx).Dir, path), mode)
}

// readDir lists folders of the host. The interpreter walks a pattern from the top, so that the folders above the root
// must be there, too, if it begins with HOST_ROOT; their content is not judged.
func (s *Server) readDir(ctx context.Context, path string) ([]fs.DirEntry, error) {
	list, err := os.ReadDir(s.inside(interp.HandlerCtx(ctx).Dir, path))
	if errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(s.root, filepath.Clean(path)+"/") {
		return nil, nil
	}

	return list, err
}

// call lets the working folder stay inside the root, where programs that the script starts can be started. umask, which
// the interpreter lacks, changes nothing: the root folder is its owner's alone.
func (s *Server) call(_ context.Context, words []string) ([]string, error) {
	if len(words) == 2 && words[0] == "umask" {
		return []string{":"}, nil
	}

	if len(words) == 2 && (words[0] == "cd" || words[0] == "pushd") && filepath.IsAbs(words[1]) {
		return []string{words[0], s.inside("/", words[1])}, nil
	}

	return words, nil
}
