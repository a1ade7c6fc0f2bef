package talosapi

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// chunkBytes is how much of a file goes into one message.
const chunkBytes = 1 << 16

// Files are those of a machine, which can be read.
type Files struct {
	// Tree returns their contents by absolute path, and when the machine booted.
	Tree func() (files map[string]string, booted time.Time)
	// OnDisk returns where a file of the machine lies that Read sends piece by piece; empty = its content is in the tree.
	OnDisk func(path string) string
}

// Read implements the machine service.
func (f Files) Read(in *machineapi.ReadRequest, out grpc.ServerStreamingServer[common.Data]) error {
	if large := f.OnDisk(in.GetPath()); large != "" {
		return sendFile(large, out)
	}

	entries, _, err := f.walk(in.GetPath())

	switch {
	case err != nil:
		return status.Errorf(codes.NotFound, "stat %s: no such file or directory", in.GetPath())
	case entries[0].folder:
		return errors.New("path must be a regular file")
	default:
		return out.Send(&common.Data{Bytes: []byte(entries[0].content)})
	}
}

// sendFile sends a file of the disk piece by piece.
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

// List implements the machine service: what is in a folder. Depth and types of a request are not looked at.
func (f Files) List(in *machineapi.ListRequest, out grpc.ServerStreamingServer[machineapi.FileInfo]) error {
	entries, booted, err := f.walk(in.GetRoot())
	if err != nil {
		return err
	}

	for _, e := range entries {
		if e.depth > 1 {
			continue
		}

		if err := out.Send(&machineapi.FileInfo{
			Name:         e.path,
			RelativeName: e.relative,
			IsDir:        e.folder,
			Mode:         uint32(e.mode()),
			Size:         int64(len(e.content)),
			Modified:     booted.Unix(),
		}); err != nil {
			return err
		}
	}

	return nil
}
