package shell

import (
	"context"
	"errors"
	"os"
	"strconv"
	"syscall"
	"time"

	"mvdan.cc/sh/v3/interp"
)

const (
	lockPoll = 20 * time.Millisecond
	// statusConflict is flock's exit status for a lock that is held.
	statusConflict = 1
)

// flock implements flock -w seconds file command…: it runs a command with a real lock on a file of the host.
func (s *Server) flock(ctx context.Context, c call) error {
	words := c.words[1:]
	if len(words) < 4 || words[0] != "-w" {
		return usageError{"flock: the lab's has -w seconds file command…, and no numbered file descriptors"}
	}

	seconds, err := strconv.ParseFloat(words[1], 64)
	if err != nil {
		return usageError{"flock: invalid number: '" + words[1] + "'"}
	}

	file, err := os.OpenFile(s.localPath(c.Dir, words[2]), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return usageError{"flock: cannot open lock file " + words[2] + ": " + err.Error()}
	}
	defer file.Close() //nolint:errcheck

	if err := waitForLock(ctx, file, time.Duration(seconds*float64(time.Second))); err != nil {
		return err
	}

	return c.exec(ctx, words[3:])
}

// waitForLock waits in real time.
func waitForLock(ctx context.Context, file *os.File, timeout time.Duration) error {
	for began := time.Now(); ; {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) //nolint:gosec // file descriptors are small
		if err == nil || !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}

		if time.Since(began) >= timeout {
			return interp.ExitStatus(statusConflict)
		}

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lockPoll):
		}
	}
}
