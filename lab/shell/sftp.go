package shell

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/gliderlabs/ssh"
	"github.com/pkg/sftp"
)

// sftp serves the host's files for reading, as scp asks for them: all of them below the root folder.
func (s *Server) sftp(session ssh.Session) {
	files := rooted{s}
	server := sftp.NewRequestServer(session,
		sftp.Handlers{FileGet: files, FilePut: files, FileCmd: files, FileList: files},
		sftp.WithStartDirectory("/root"))

	err := server.Serve()
	_ = server.Close()

	if err != nil && !errors.Is(err, io.EOF) {
		_ = session.Exit(statusFailed)
	}
}

type rooted struct{ s *Server }

func (r rooted) path(request *sftp.Request) string { return r.s.inside("/", request.Filepath) }

// Fileread opens a file for reading.
func (r rooted) Fileread(request *sftp.Request) (io.ReaderAt, error) { return os.Open(r.path(request)) }

// Filewrite refuses to write: scripts do that.
func (r rooted) Filewrite(*sftp.Request) (io.WriterAt, error) { return nil, sftp.ErrSSHFxOpUnsupported }

// Filecmd refuses to change the file system.
func (r rooted) Filecmd(*sftp.Request) error { return sftp.ErrSSHFxOpUnsupported }

// Filelist answers what is there.
func (r rooted) Filelist(request *sftp.Request) (sftp.ListerAt, error) {
	if request.Method == "List" {
		entries, err := os.ReadDir(r.path(request))
		if err != nil {
			return nil, err
		}

		list := make(infos, 0, len(entries))

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

	return infos{info}, nil
}

type infos []fs.FileInfo

// ListAt copies a part of the list.
func (l infos) ListAt(part []fs.FileInfo, offset int64) (int, error) {
	if offset >= int64(len(l)) {
		return 0, io.EOF
	}

	n := copy(part, l[offset:])
	if n < len(part) {
		return n, io.EOF
	}

	return n, nil
}
