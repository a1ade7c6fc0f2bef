package proxmoxve

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// interruptKey is the key of the context that an interrupt cancels.
type interruptKey struct{}

// withoutInterrupt returns a context that outlives an interrupt. Like the published provider, operations finish what
// they begin, because the next update would take an incomplete machine in the state for a complete one. Only tasks
// that can be undone, and waits that nothing depends on, use interrupt.
func withoutInterrupt(ctx context.Context) context.Context {
	return context.WithValue(context.WithoutCancel(ctx), interruptKey{}, ctx)
}

// interrupt returns a channel that an interrupt closes.
func interrupt(ctx context.Context) <-chan struct{} {
	if original, ok := ctx.Value(interruptKey{}).(context.Context); ok {
		return original.Done()
	}

	return nil
}

// errInterrupted is the error of sleep after an interrupt.
var errInterrupted = fmt.Errorf("interrupted: %w", context.Canceled)

// sleep waits until d has passed, the context has ended or stop is closed; nil = no such channel.
func sleep(ctx context.Context, d time.Duration, stop <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-timer.C:
		return nil
	case <-stop:
		return errInterrupted
	case <-ctx.Done():
		return ctx.Err()
	}
}

// waitError describes why a wait ended: a timeout or an interrupt.
func waitError(err error, what string) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("timeout while waiting for %s: %w", what, err)
	}

	return fmt.Errorf("interrupted while waiting for %s (run `pulumi refresh` before the next update): %w", what, err)
}
