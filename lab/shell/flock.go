package shell

import (
	"context"
	"errors"
	"os"
	"strconv"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
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
		return usageError{"flock: the lab supports -w seconds file command…, but no file descriptor numbers"}
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
	err := wait.PollUntilContextTimeout(ctx, lockPoll, timeout, true, func(context.Context) (bool, error) {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) //nolint:gosec // file descriptors are small
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return false, nil
		}

		return err == nil, err
	})
	if ctx.Err() == nil && wait.Interrupted(err) {
		return interp.ExitStatus(statusConflict)
	}

	return err
}
