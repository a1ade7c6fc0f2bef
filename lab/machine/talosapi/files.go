package talosapi

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// chunkBytes is how much of an archive goes into one message.
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

// List implements the machine service.
func (f Files) List(in *machineapi.ListRequest, out grpc.ServerStreamingServer[machineapi.FileInfo]) error {
	entries, booted, err := f.walk(in.GetRoot())
	if err != nil {
		return err
	}

	deepest := 1

	switch {
	case in.GetRecurse() && in.GetRecursionDepth() > 0:
		deepest = int(in.GetRecursionDepth())
	case in.GetRecurse():
		deepest = len(entries)
	}

	for _, e := range entries {
		if e.depth > deepest || !e.isOf(in.GetTypes()) {
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

// isOf says whether a listing of these types shows the entry; a listing without types shows all. The machines have no
// links.
func (e entry) isOf(types []machineapi.ListRequest_Type) bool {
	own := machineapi.ListRequest_REGULAR
	if e.folder {
		own = machineapi.ListRequest_DIRECTORY
	}

	return len(types) == 0 || slices.Contains(types, own)
}

// DiskUsage implements the machine service: a folder is as large as what is in it.
func (f Files) DiskUsage(
	in *machineapi.DiskUsageRequest, out grpc.ServerStreamingServer[machineapi.DiskUsageInfo],
) error {
	for _, root := range in.GetPaths() {
		entries, _, err := f.walk(root)
		if err != nil {
			if err := out.Send(&machineapi.DiskUsageInfo{Name: root, RelativeName: root, Error: err.Error()}); err != nil {
				return err
			}

			continue
		}

		// The content comes before the folder that holds it, as du prints it.
		for _, e := range slices.Backward(entries) {
			size := usage(entries, e)
			tooDeep := in.GetRecursionDepth() > 0 && e.depth >= int(in.GetRecursionDepth())
			threshold := in.GetThreshold()

			if tooDeep || !e.folder && !in.GetAll() || threshold > 0 && size < threshold || threshold < 0 && size > -threshold {
				continue
			}

			if err := out.Send(&machineapi.DiskUsageInfo{Name: e.path, RelativeName: e.relative, Size: size}); err != nil {
				return err
			}
		}
	}

	return nil
}

func usage(entries []entry, of entry) int64 {
	var size int64

	for _, e := range entries {
		if e.path == of.path || strings.HasPrefix(e.path, strings.TrimSuffix(of.path, "/")+"/") {
			size += int64(len(e.content))
		}
	}

	return size
}

// Copy implements the machine service: a compressed archive of what is at the path. As in Talos, a failure is a message
// of the stream.
func (f Files) Copy(in *machineapi.CopyRequest, out grpc.ServerStreamingServer[common.Data]) error {
	if !path.IsAbs(in.GetRootPath()) {
		return fmt.Errorf("path is not absolute %v", in.GetRootPath())
	}

	archive, err := f.archive(in.GetRootPath())
	if err != nil {
		return out.Send(&common.Data{Metadata: &common.Metadata{Error: err.Error()}})
	}

	for chunk := range slices.Chunk(archive, chunkBytes) {
		if err := out.Send(&common.Data{Bytes: chunk}); err != nil {
			return err
		}
	}

	return nil
}

func (f Files) archive(root string) ([]byte, error) {
	entries, booted, err := f.walk(root)
	if err != nil {
		return nil, err
	}

	var buffer bytes.Buffer

	compressed := gzip.NewWriter(&buffer)
	archive := tar.NewWriter(compressed)

	for _, e := range entries {
		if e.folder && e.depth == 0 {
			continue
		}

		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: e.relative, Size: int64(len(e.content)), Mode: int64(e.mode().Perm()), ModTime: booted,
		}
		if e.folder {
			header.Typeflag, header.Name = tar.TypeDir, e.relative+"/"
		}

		if err := archive.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("unable to archive %s: %w", e.path, err)
		}

		if _, err := archive.Write([]byte(e.content)); err != nil {
			return nil, fmt.Errorf("unable to archive %s: %w", e.path, err)
		}
	}

	if err := errors.Join(archive.Close(), compressed.Close()); err != nil {
		return nil, fmt.Errorf("unable to archive %s: %w", root, err)
	}

	return buffer.Bytes(), nil
}
