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
	// restartFirst and restartMost bound the pause before a part that ended is started again. A kubelet's are 10 s and 5
	// min, which no one waits for in a lab.
	restartFirst = time.Second
	restartMost  = 10 * time.Second
	// settled is how long a part runs before its next pause is the first again.
	settled = time.Minute
	// logMost is the size at which a part begins a new log at its next start; the one before is kept.
	logMost = 20 << 20
)

// Part is one program of labkube with its arguments.
type Part struct {
	Name string
	// Version is what the part reports.
	Version string
	Args    []string
}

// Run keeps a part running until the context ends: it is started again after growing pauses, as a kubelet does it, and
// killed at the end, since a machine that is switched off asks no one. state hears nil when the part has started, and
// why a start failed or the part ended, with its last words.
func (h Host) Run(ctx context.Context, p Part, state func(error)) {
	pause := restartFirst

	for ctx.Err() == nil {
		began := time.Now()
		err := h.run(ctx, p, state)

		if ctx.Err() != nil {
			return
		}

		state(err)

		if time.Since(began) > settled {
			pause = restartFirst
		}

		Wait(ctx, pause)

		pause = min(2*pause, restartMost)
	}
}

// Wait waits for a time, or until the context ends.
func Wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// run runs a part once.
func (h Host) run(ctx context.Context, p Part, state func(error)) error {
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

	began := false

	err = process.Run(ctx, c, func() {
		began = true

		state(nil)
	})

	switch {
	case err != nil && !began:
		return fmt.Errorf("unable to start %s: %w%s", p.Name, err, wayOut(err.Error()))
	case err != nil:
		words := lastWords(path, from)

		return fmt.Errorf("%s: %w: %s%s (%s)", p.Name, err, words, wayOut(words), path)
	default:
		return fmt.Errorf("%s has ended (%s)", p.Name, path)
	}
}

func openLog(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("unable to make the folder of logs: %w", err)
	}

	if info, err := os.Stat(path); err == nil && info.Size() > logMost {
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
