package shell

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"mvdan.cc/sh/v3/interp"
)

const (
	lockPoll = 20 * time.Millisecond
	// statusConflict is flock's own for a lock that someone else has.
	statusConflict = 1
	statusBadFlock = 64
)

// lockRequest is flock's command line: flock [-s|-x] [-n|-w seconds] [-E status] file command…
type lockRequest struct {
	file     string
	command  []string
	shared   bool
	wait     time.Duration // negative = forever
	conflict uint8
}

// flock takes a real lock on a file of the host and runs a command meanwhile.
func (s *Server) flock(ctx context.Context, c call) error {
	r, err := parseLock(c.words[1:])
	if err != nil {
		fmt.Fprintf(c.Stderr, "flock: %s\n", err) //nolint:errcheck

		return interp.ExitStatus(statusBadFlock)
	}

	file, err := os.OpenFile(s.inside(c.Dir, r.file), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		fmt.Fprintf(c.Stderr, "flock: cannot open lock file %s: %s\n", r.file, err) //nolint:errcheck

		return interp.ExitStatus(66)
	}
	defer file.Close() //nolint:errcheck

	if err := r.lock(ctx, file); err != nil {
		return err
	}

	return c.again(ctx, r.command)
}

func (r lockRequest) lock(ctx context.Context, file *os.File) error {
	how := syscall.LOCK_EX
	if r.shared {
		how = syscall.LOCK_SH
	}

	for began := time.Now(); ; {
		err := syscall.Flock(int(file.Fd()), how|syscall.LOCK_NB) //nolint:gosec // file descriptors are small
		if err == nil || !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}

		if r.wait >= 0 && time.Since(began) >= r.wait {
			return interp.ExitStatus(r.conflict)
		}

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lockPoll):
		}
	}
}

func parseLock(words []string) (lockRequest, error) {
	r := lockRequest{wait: -1, conflict: statusConflict}

	for len(words) > 0 && strings.HasPrefix(words[0], "-") {
		flag := words[0]
		words = words[1:]

		switch flag {
		case "-s", "--shared":
			r.shared = true
		case "-x", "-e", "--exclusive", "-o", "--close", "-F", "--no-fork", "--verbose":
		case "-n", "--nb", "--nonblock":
			r.wait = 0
		case "-w", "--wait", "--timeout", "-E", "--conflict-exit-code":
			if len(words) == 0 {
				return r, fmt.Errorf("option requires an argument -- '%s'", strings.TrimLeft(flag, "-"))
			}

			n, err := strconv.ParseFloat(words[0], 64)
			if err != nil {
				return r, fmt.Errorf("invalid number: '%s'", words[0])
			}

			words = words[1:]

			if flag == "-E" || flag == "--conflict-exit-code" {
				r.conflict = uint8(n)
			} else {
				r.wait = time.Duration(n * float64(time.Second))
			}
		default:
			return r, fmt.Errorf("unrecognized option '%s'", flag)
		}
	}

	if len(words) < 2 {
		return r, errors.New("requires a file and a command: the lab's shell has no numbered file descriptors")
	}

	r.file, r.command = words[0], words[1:]
	if len(r.command) == 2 && (r.command[0] == "-c" || r.command[0] == "--command") {
		r.command = []string{"bash", "-c", r.command[1]}
	}

	return r, nil
}
