package proxmoxve

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// interruptKey finds the context that an interrupt ends.
type interruptKey struct{}

// uninterrupted returns a context that outlives an interrupt: what is begun is finished, as in the published provider,
// because half a machine in the state is taken for a whole one by the next update. Only where a task can be undone, or
// nothing depends on it, do operations look at interrupt.
func uninterrupted(ctx context.Context) context.Context {
	return context.WithValue(context.WithoutCancel(ctx), interruptKey{}, ctx)
}

// interrupt returns a channel that is closed by an interrupt.
func interrupt(ctx context.Context) <-chan struct{} {
	if original, ok := ctx.Value(interruptKey{}).(context.Context); ok {
		return original.Done()
	}

	return nil
}

// errInterrupted is what sleep returns after an interrupt.
var errInterrupted = fmt.Errorf("interrupted: %w", context.Canceled)

// sleep waits, or returns why it must not: the end of the context, or of the stop channel when there is one.
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

// stopped words why a wait ended: a limit that ran out, or an interrupt.
func stopped(err error, what string) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("timeout while waiting for %s: %w", what, err)
	}

	return fmt.Errorf("interrupted while waiting for %s (run `pulumi refresh` before the next update): %w", what, err)
}
