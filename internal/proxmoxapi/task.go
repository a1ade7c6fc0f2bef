package proxmoxapi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/luthermonson/go-proxmox"
)

// Sleep waits, or returns the context's error.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// WaitForTask polls a task until it has ended, and returns an error if it failed; a task with warnings succeeded.
func WaitForTask(ctx context.Context, client *proxmox.Client, id proxmox.UPID, poll time.Duration) error {
	task := proxmox.NewTask(id, client)
	if task == nil {
		return errors.New("Proxmox returned no task") //nolint:staticcheck // a name
	}

	for {
		if err := task.Ping(ctx); err != nil {
			return Cause(err)
		}

		if task.IsCompleted {
			break
		}

		if err := Sleep(ctx, poll); err != nil {
			return err
		}
	}

	if !task.IsSuccessful && !strings.HasPrefix(task.ExitStatus, "WARNINGS:") {
		return fmt.Errorf("its task ended with %q", task.ExitStatus)
	}

	return nil
}
