package controlplane

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"talos-proxmox/lab/machine/process"
)

const (
	// minRestartDelay and restartMost bound the pause before a part that ended is started again. A kubelet's are 10 s and 5
	// min, which no one waits for in a lab.
	minRestartDelay = time.Second
	maxRestartDelay = 10 * time.Second
	// restartReset is how long a part runs before its next pause is the first again.
	restartReset = time.Minute
	// maxLogBytes is the size at which a part begins a new log at its next start; the one before is kept.
	maxLogBytes = 20 << 20
)

// Component is one program of labkube with its arguments.
type Component struct {
	Name string
	// Version is what the part reports.
	Version string
	Args    []string
}

// Run keeps a part running until the context ends: it is started again after growing pauses, as a kubelet does it, and
// killed at the end, since a machine that is switched off asks no one. state hears nil when the part has started, and
// why a start failed or the part ended, with its last words.
func (h Host) Run(ctx context.Context, p Component, report func(error)) {
	pause := minRestartDelay

	for ctx.Err() == nil {
		started := time.Now()
		err := h.run(ctx, p, report)

		if ctx.Err() != nil {
			return
		}

		report(err)

		if time.Since(started) > restartReset {
			pause = minRestartDelay
		}

		Sleep(ctx, pause)

		pause = min(2*pause, maxRestartDelay)
	}
}

// Sleep waits for a time, or until the context ends.
func Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// run runs a part once.
func (h Host) run(ctx context.Context, p Component, report func(error)) error {
	path := h.LogFile(p.Name)

	log, err := openLog(path)
	if err != nil {
		return err
	}

	defer func() { _ = log.Close() }()

	arguments := append([]string{"--as", p.Version, p.Name}, p.Args...)
	c := exec.Command(h.Binary, arguments...) //nolint:gosec // the lab's own binary
	c.Dir, c.Stdout, c.Stderr = h.Dir, log, log
	// A part that cleans up often instead of late takes half the memory; there is nothing of a host's environment that a
	// machine should see.
	c.Env = []string{"GOGC=50", "PATH=" + os.Getenv("PATH")}

	from, _ := log.Seek(0, 2)

	started := false

	err = process.Run(ctx, c, func() {
		started = true

		report(nil)
	})

	switch {
	case err != nil && !started:
		return fmt.Errorf("unable to start %s: %w%s", p.Name, err, hint(err.Error()))
	case err != nil:
		words := lastError(path, from)

		return fmt.Errorf("%s: %w: %s%s (%s)", p.Name, err, words, hint(words), path)
	default:
		return fmt.Errorf("%s has ended (%s)", p.Name, path)
	}
}

func openLog(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("unable to make the folder of logs: %w", err)
	}

	if info, err := os.Stat(path); err == nil && info.Size() > maxLogBytes {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, fmt.Errorf("unable to begin a new log: %w", err)
		}
	}

	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("unable to open the log: %w", err)
	}

	return log, nil
}
