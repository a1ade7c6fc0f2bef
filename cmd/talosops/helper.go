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
	"strings"
	"time"

	"talos-proxmox/internal/cli"
	"talos-proxmox/internal/request"
)

// helper is a program whose library is too large for this one.
type helper struct{ cli.Program }

var (
	kubeupgrade = helper{cli.Program{Name: "kubeupgrade", Has: "Talos' upgrade library", Make: "make stack-tools"}}
	platform    = helper{cli.Program{Name: "platform", Has: "Helm's library", Make: "make stack-tools"}}
)

// helperEnds is how long one may take to end after an interrupt: it waits for no node then.
const helperEnds = 30 * time.Second

// find looks beside this program, in the project's .bin and on PATH.
func (h helper) find() (string, error) { return h.Find(".") }

// call passes a program, at its path, the request, with its secrets, on standard input alone, and ends it by closing
// that: also where this program is killed.
func (h helper) call(ctx context.Context, program string, arguments []string, req any, progress io.Writer) error {
	text, err := json.Marshal(req)
	if err != nil {
		return fmt.Errorf("unable to write the request for %s: %w", h.Name, err)
	}

	said := &sayings{progress: progress, name: h.Name}

	cmd := exec.CommandContext(ctx, program, arguments...) //nolint:gosec // one of this project's own, and its verb
	cmd.Stderr = said
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = helperEnds

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
	name     string
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
	failure, begins := strings.CutPrefix(line, s.name+": ")

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

// callKubeupgrade has it upgrade a cluster.
func callKubeupgrade(ctx context.Context, program string, req request.KubernetesUpgrade, progress io.Writer) error {
	return kubeupgrade.call(ctx, program, nil, req, progress)
}
