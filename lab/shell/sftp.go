package shell

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/gliderlabs/ssh"
	"github.com/pkg/sftp"
)

// sftp serves the host's files read-only, for scp; all paths are inside the root folder.
func (s *Server) sftp(session ssh.Session) {
	files := hostFS{s}
	server := sftp.NewRequestServer(session,
		sftp.Handlers{FileGet: files, FilePut: files, FileCmd: files, FileList: files},
		sftp.WithStartDirectory("/root"))

	err := server.Serve()
	_ = server.Close()

	if err != nil && !errors.Is(err, io.EOF) {
		_ = session.Exit(statusFailed)
	}
}

type hostFS struct{ s *Server }

func (r hostFS) path(request *sftp.Request) string { return r.s.localPath("/", request.Filepath) }

// Fileread opens a file for reading.
func (r hostFS) Fileread(request *sftp.Request) (io.ReaderAt, error) { return os.Open(r.path(request)) }

// Filewrite is not supported: only scripts write.
func (r hostFS) Filewrite(*sftp.Request) (io.WriterAt, error) { return nil, sftp.ErrSSHFxOpUnsupported }

// Filecmd is not supported.
func (r hostFS) Filecmd(*sftp.Request) error { return sftp.ErrSSHFxOpUnsupported }

// Filelist lists a folder or returns a file's information.
func (r hostFS) Filelist(request *sftp.Request) (sftp.ListerAt, error) {
	if request.Method == "List" {
		entries, err := os.ReadDir(r.path(request))
		if err != nil {
			return nil, err
		}

		list := make(fileInfos, 0, len(entries))

		for _, entry := range entries {
			if info, err := entry.Info(); err == nil {
				list = append(list, info)
			}
		}

		return list, nil
	}

	info, err := os.Stat(r.path(request))
	if err != nil {
		return nil, err
	}

	return fileInfos{info}, nil
}

type fileInfos []fs.FileInfo

// ListAt implements sftp.ListerAt.
func (l fileInfos) ListAt(part []fs.FileInfo, offset int64) (int, error) {
	if offset >= int64(len(l)) {
		return 0, io.EOF
	}

	n := copy(part, l[offset:])
	if n < len(part) {
		return n, io.EOF
	}

	return n, nil
}
