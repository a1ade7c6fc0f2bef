package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// errRunInProgress is the error of a second concurrent operation.
var errRunInProgress = errors.New("another up, preview, refresh or destroy runs on this lab: wait for it, or stop it")

// lockRun allows one engine operation at a time on a lab. Unlike the backend's own lock, it ends with the process.
// Closing the file releases it.
func lockRun(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("unable to create the lab's folder: %w", err)
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
		return nil, errRunInProgress
	}

	return nil, fmt.Errorf("unable to take the lab's run lock: %w", err)
}
