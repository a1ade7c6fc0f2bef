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
	// minRestartDelay and maxRestartDelay bound the delay before a component restarts. A kubelet's 10 s and 5 min are too
	// long for a lab.
	minRestartDelay = time.Second
	maxRestartDelay = 10 * time.Second
	// restartReset is how long a component runs before its restart delay is reset.
	restartReset = time.Minute
	// maxLogBytes is the size at which a component's next start rotates its log.
	maxLogBytes = 20 << 20
)

// Component is a program of labkube with its arguments.
type Component struct {
	Name string
	// Version is the version that the component reports.
	Version string
	Args    []string
}

// Run keeps a component running until the context ends. It restarts the component after growing delays like a kubelet,
// and kills it at the end, as a power cut does. It calls report with nil when the component has started, and with an
// error that includes its last log line when a start failed or the component ended.
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

// Sleep waits for a duration or until the context ends.
func Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// run runs a component once.
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
	// More frequent garbage collection halves a component's memory. Nothing else of the host's environment is passed on.
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
		line := lastError(path, from)

		return fmt.Errorf("%s: %w: %s%s (%s)", p.Name, err, line, hint(line), path)
	default:
		return fmt.Errorf("%s has ended (%s)", p.Name, path)
	}
}

func openLog(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("unable to create the log folder: %w", err)
	}

	if info, err := os.Stat(path); err == nil && info.Size() > maxLogBytes {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, fmt.Errorf("unable to rotate the log: %w", err)
		}
	}

	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("unable to open the log: %w", err)
	}

	return log, nil
}
