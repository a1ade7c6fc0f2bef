package talosapi

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// chunkBytes is how much of a file one message contains.
const chunkBytes = 1 << 16

// Files serves the readable files of a machine.
type Files struct {
	// Tree returns the files, and when the machine booted.
	Tree func() (files fs.FS, booted time.Time)
	// OnDisk returns the path of a large file, which Read streams; empty if its content is in the tree.
	OnDisk func(path string) string
}

// Read implements the machine service.
func (f Files) Read(in *machineapi.ReadRequest, out grpc.ServerStreamingServer[common.Data]) error {
	if large := f.OnDisk(in.GetPath()); large != "" {
		return sendFile(large, out)
	}

	tree, _ := f.Tree()
	name := fsPath(in.GetPath())

	switch info, err := fs.Stat(tree, name); {
	case err != nil:
		return status.Errorf(codes.NotFound, "stat %s: no such file or directory", in.GetPath())
	case info.IsDir():
		return errors.New("path must be a regular file")
	}

	content, err := fs.ReadFile(tree, name)
	if err != nil {
		return err
	}

	return out.Send(&common.Data{Bytes: content})
}

// fsPath converts an absolute path to one of io/fs.
func fsPath(absolute string) string {
	return cmp.Or(strings.TrimPrefix(path.Clean("/"+absolute), "/"), ".")
}

// sendFile streams a file.
func sendFile(path string, out grpc.ServerStreamingServer[common.Data]) error {
	file, err := os.Open(path) //nolint:gosec // the machine's own
	if err != nil {
		return status.Error(codes.NotFound, err.Error())
	}

	defer func() { _ = file.Close() }()

	for piece := make([]byte, chunkBytes); ; {
		n, err := file.Read(piece)

		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}

		if err := out.Send(&common.Data{Bytes: piece[:n]}); err != nil {
			return err
		}
	}
}

// List implements the machine service. It ignores the depth and the types of a request.
func (f Files) List(in *machineapi.ListRequest, out grpc.ServerStreamingServer[machineapi.FileInfo]) error {
	tree, booted := f.Tree()
	root := path.Clean("/" + in.GetRoot())

	send := func(name, relative string, info fs.FileInfo) error {
		return out.Send(&machineapi.FileInfo{
			Name: name, RelativeName: relative, IsDir: info.IsDir(), Mode: uint32(info.Mode()), Size: info.Size(),
			Modified: booted.Unix(),
		})
	}

	info, err := fs.Stat(tree, fsPath(root))

	switch {
	case err != nil:
		return fmt.Errorf("lstat %s: no such file or directory", root)
	case !info.IsDir():
		return send(root, path.Base(root), info)
	}

	if err = send(root, ".", info); err != nil {
		return err
	}

	entries, err := fs.ReadDir(tree, fsPath(root))

	for _, e := range entries {
		if info, err = e.Info(); err == nil {
			err = send(path.Join(root, e.Name()), e.Name(), info)
		}

		if err != nil {
			return err
		}
	}

	return err
}
