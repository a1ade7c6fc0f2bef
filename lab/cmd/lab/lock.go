package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// errRunning is the error while another operation runs.
var errRunning = errors.New("another up, preview, refresh or destroy runs on this lab: wait for it, or stop it")

// lockRuns makes sure that one engine operation runs at a time on a lab; the lock ends with the process, unlike the
// backend's own. Closing the file gives it back.
func lockRuns(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("unable to make the lab's folder: %w", err)
	}

	lock, err := os.OpenFile(filepath.Join(dir, "run.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("unable to open the lab's run lock: %w", err)
	}

	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return lock, nil
	}

	_ = lock.Close()

	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errRunning
	}

	return nil, fmt.Errorf("unable to take the lab's run lock: %w", err)
}
