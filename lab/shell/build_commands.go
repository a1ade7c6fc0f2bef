package shell

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"
	"mvdan.cc/sh/v3/interp"
)

const (
	isoBlock = 2048
	// isoOverhead is what genisoimage writes in addition to the files.
	isoOverhead = 350 << 10
	// statusTimeout is timeout's exit status for a command that it ended.
	statusTimeout = 124
)

// isoRequest is a parsed command line of genisoimage.
type isoRequest struct {
	output, label string
	rockRidge     bool
	sources       []string
}

func parseISO(words []string) (isoRequest, error) {
	r := isoRequest{label: "CDROM"}
	values := map[string]*string{"-output": &r.output, "-volid": &r.label}

	for i := 0; i < len(words); i++ {
		switch value, word := values[words[i]], words[i]; {
		case value != nil && i+1 < len(words):
			i++
			*value = words[i]
		case word == "-rock":
			r.rockRidge = true
		case slices.Contains([]string{"-quiet", "-joliet", "-joliet-long"}, word):
		case strings.HasPrefix(word, "-"):
			return r, fmt.Errorf("Bad Option '%s' (error -1 BADFLAG).", word) //nolint:revive,staticcheck // its own words
		default:
			r.sources = append(r.sources, word)
		}
	}

	switch {
	case len(r.sources) == 0:
		return r, errors.New("Missing pathspec.") //nolint:revive,staticcheck // its own words
	case r.output == "":
		return r, errors.New("the lab writes no image to standard output: set -output")
	default:
		return r, nil
	}
}

// genisoimage writes a real ISO 9660 image, optionally with Rock Ridge. It ignores Joliet, which Linux does not read
// next to Rock Ridge.
func (s *Server) genisoimage(_ context.Context, c call) error {
	r, err := parseISO(c.words[1:])
	if err == nil {
		err = s.writeISO(c, r)
	}

	if err != nil {
		c.errorf("genisoimage: %s\n", err)

		return interp.ExitStatus(statusFailed)
	}

	return nil
}

// writeISO writes files, and those in folders of the list, to the top of an image.
func (s *Server) writeISO(c call, r isoRequest) (err error) {
	var files []string

	for _, source := range r.sources {
		name := s.localPath(c.Dir, source)

		entries, err := os.ReadDir(name)

		switch {
		case errors.Is(err, os.ErrNotExist):
			return fmt.Errorf("No such file or directory. Invalid node - '%s'.", source) //nolint:revive,staticcheck // as above
		case err != nil:
			files = append(files, name)
		default:
			for _, entry := range entries {
				files = append(files, filepath.Join(name, entry.Name()))
			}
		}
	}

	size, output := int64(isoOverhead), s.localPath(c.Dir, r.output)

	for _, name := range files {
		if info, err := os.Stat(name); err == nil {
			size += info.Size()
		}
	}

	if s.dc.CheckSpace(s.host, s.hostPath(output), size) != nil || s.openError(output, os.O_WRONLY) != nil {
		return openImageError(syscall.ENOSPC, r.output)
	}

	to, err := os.OpenFile(output, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return openImageError(err, r.output)
	}

	defer func() { err = errors.Join(err, to.Close()) }()

	workspace, err := os.MkdirTemp("", "iso")
	if err != nil {
		return err
	}
	defer os.RemoveAll(workspace) //nolint:errcheck // a temporary folder

	image, err := iso9660.Create(file.New(to, false), 0, 0, isoBlock, workspace)
	if err != nil {
		return err
	}

	for _, name := range files {
		if err := addToISO(image, name); err != nil {
			return err
		}
	}

	return image.Finalize(iso9660.FinalizeOptions{RockRidge: r.rockRidge, VolumeIdentifier: r.label})
}

// openImageError returns genisoimage's error for an output that it cannot write.
func openImageError(err error, output string) error {
	//nolint:revive,staticcheck // its own words
	return fmt.Errorf("%s. Unable to open disc image file '%s'.", strerror(err), output)
}

func addToISO(image *iso9660.FileSystem, name string) error {
	content, err := os.ReadFile(name)
	if err != nil {
		return err
	}

	to, err := image.OpenFile("/"+filepath.Base(name), os.O_CREATE|os.O_RDWR)
	if err != nil {
		return err
	}

	_, err = to.Write(content)

	return errors.Join(err, to.Close())
}

var serialSocket = regexp.MustCompile(`^-u UNIX-CONNECT:/var/run/qemu-server/([0-9]+)\.serial0 -$`)

// socat connects to a VM's serial console and prints its output.
func (s *Server) socat(ctx context.Context, c call) error {
	found := serialSocket.FindStringSubmatch(strings.Join(c.words[1:], " "))
	if found == nil {
		return usageError{"socat: the lab supports only consoles: socat -u UNIX-CONNECT:/var/run/qemu-server/<vmid>.serial0 -"}
	}

	vmid, _ := strconv.Atoi(found[1]) //nolint:errcheck // digits

	err := s.dc.Serial(ctx, s.host, vmid, func(text string) error {
		_, err := fmt.Fprintf(c.Stdout, "%s\r\n", text)

		return err
	})
	if err != nil && ctx.Err() == nil {
		c.errorf("socat[1] E %s\n", err)

		return interp.ExitStatus(statusFailed)
	}

	return ctx.Err()
}

// timeout implements timeout <seconds> command… in modelled seconds.
func (s *Server) timeout(ctx context.Context, c call) error {
	seconds, err := strconv.Atoi(strings.Join(c.words[1:min(2, len(c.words))], ""))
	if err != nil || len(c.words) < 3 {
		return usageError{"usage: the lab's timeout supports a number of seconds and a command"}
	}

	runCtx, cancel := context.WithCancel(ctx)
	defer cancel()

	expired := make(chan bool, 1)

	go func() {
		expired <- s.sleep(runCtx, time.Duration(seconds)*time.Second) == nil

		cancel()
	}()

	err = c.exec(runCtx, c.words[2:])

	cancel()

	if <-expired && ctx.Err() == nil {
		return interp.ExitStatus(statusTimeout)
	}

	return err
}
