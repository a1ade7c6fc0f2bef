package proxmoxapi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/luthermonson/go-proxmox"
)

// Sleep waits, or returns why it must not.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Await asks for a task until it has ended. The error is how it ended; one that ended with warnings did its work.
func Await(ctx context.Context, client *proxmox.Client, id proxmox.UPID, poll time.Duration) error {
	task := proxmox.NewTask(id, client)
	if task == nil {
		return errors.New("Proxmox names no task") //nolint:staticcheck // a name
	}

	for {
		if err := task.Ping(ctx); err != nil {
			return Said(err)
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
