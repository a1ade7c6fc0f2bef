package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"talos-proxmox/internal/request"
)

// kubeupgradeName is the program that has Talos' upgrade library: too large for this one.
const kubeupgradeName = "kubeupgrade"

// kubeupgradeEnds is how long it may take to end after an interrupt: it waits for no node then.
const kubeupgradeEnds = 30 * time.Second

// findKubeupgrade looks beside this program, in the project's .bin and on PATH.
func findKubeupgrade() (string, error) {
	var places []string
	if own, err := os.Executable(); err == nil {
		places = append(places, filepath.Dir(own))
	}

	places = append(places, ".bin")

	for _, place := range places {
		path, err := filepath.Abs(filepath.Join(place, kubeupgradeName))
		if err != nil {
			continue
		}

		if found, err := exec.LookPath(path); err == nil {
			return found, nil
		}
	}

	found, err := exec.LookPath(kubeupgradeName)
	if err != nil {
		return "", fmt.Errorf("unable to find kubeupgrade, which has Talos' upgrade library, in %s or on PATH; nothing was "+
			"changed: `make kubeupgrade` builds it (a few minutes, once), then run the same again", strings.Join(places, ", "))
	}

	return found, nil
}

// callKubeupgrade passes it the request, with its secrets, on standard input alone, and ends it by closing that: also
// where this program is killed.
func callKubeupgrade(
	ctx context.Context, program string, req request.KubernetesUpgrade, progress io.Writer,
) error {
	text, err := json.Marshal(req)
	if err != nil {
		return fmt.Errorf("unable to write the request for %s: %w", kubeupgradeName, err)
	}

	said := &sayings{progress: progress}

	cmd := exec.CommandContext(ctx, program)
	cmd.Stderr = said
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = kubeupgradeEnds

	in, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("unable to start %s: %w", program, err)
	}

	if err := cmd.Start(); err != nil {
		return fmt.Errorf("unable to start %s: %w", program, err)
	}

	if _, err := in.Write(append(text, '\n')); err != nil {
		return errors.Join(fmt.Errorf("unable to send %s its request: %w", program, err), cmd.Wait())
	}

	err = cmd.Wait()
	if failure := said.failure(); err != nil && failure != "" {
		return errors.New(failure)
	}

	if err != nil {
		return fmt.Errorf("%s ended without a word: %w: run the same again", program, err)
	}

	return nil
}

// sayings are the lines of a program: its progress, and at the end what is wrong, which begins with its name.
type sayings struct {
	progress io.Writer
	rest     []byte // of a line that has not ended
	wrong    []string
}

// Write implements io.Writer.
func (s *sayings) Write(b []byte) (int, error) {
	s.rest = append(s.rest, b...)

	for {
		line, rest, whole := bytes.Cut(s.rest, []byte("\n"))
		if !whole {
			return len(b), nil
		}

		s.rest = rest
		s.take(string(line))
	}
}

func (s *sayings) take(line string) {
	failure, begins := strings.CutPrefix(line, kubeupgradeName+": ")

	switch {
	case len(s.wrong) > 0:
		s.wrong = append(s.wrong, line)
	case begins:
		s.wrong = []string{failure}
	default:
		// Continue even if no one reads the progress.
		_, _ = fmt.Fprintln(s.progress, line)
	}
}

func (s *sayings) failure() string { return strings.Join(s.wrong, "\n") }

// lineWriter writes whole lines among those of a watch.
type lineWriter struct{ *watch }

// Write implements io.Writer.
func (w lineWriter) Write(line []byte) (int, error) {
	w.print(strings.TrimSuffix(string(line), "\n"))

	return len(line), nil
}
