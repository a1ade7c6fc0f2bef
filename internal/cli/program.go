package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/term"
)

// Program is an external program that a command runs: one with libraries too large for the command, or a third party's.
type Program struct {
	Name         string
	Provides     string // for messages
	BuildCommand string // the command that builds it
}

// Find looks for the program beside this one, in the project's .bin and on PATH.
func (p Program) Find(project string) (string, error) {
	var places []string
	if own, err := os.Executable(); err == nil {
		places = append(places, filepath.Dir(own))
	}

	places = append(places, filepath.Join(project, ".bin"))

	for _, place := range places {
		path, err := filepath.Abs(filepath.Join(place, p.Name))
		if err != nil {
			continue
		}

		if found, err := exec.LookPath(path); err == nil {
			return found, nil
		}
	}

	found, err := exec.LookPath(p.Name)
	if err != nil {
		return "", fmt.Errorf("unable to find %s, which has %s, in %s or on PATH; nothing was changed: `%s` builds it (a few "+
			"minutes, once), then run the same again", p.Name, p.Provides, strings.Join(places, ", "), p.BuildCommand)
	}

	return found, nil
}

// findOr returns the absolute path of the named program, or else the one that Find finds.
func (p Program) findOr(named, project string) (string, error) {
	if named == "" {
		return p.Find(project)
	}

	path, err := filepath.Abs(named)
	if err != nil {
		return "", fmt.Errorf("unable to find %s: %w", named, err)
	}

	return path, nil
}

// Run runs a program for the user, with environment variables in addition to this process's. An interrupt reaches it
// once: from the terminal, or from here. The error has the program's exit status.
func Run(
	ctx context.Context, folder string, environment []string, stdout, stderr io.Writer, program string, args ...string,
) error {
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // the project's or the user's program
	cmd.Dir, cmd.Stdout, cmd.Stderr = folder, stdout, stderr

	cmd.Env = append(append(os.Environ(), environment...), "PULUMI_SKIP_UPDATE_CHECK=true")

	if term.IsTerminal(int(os.Stdin.Fd())) { //nolint:gosec // a file descriptor
		cmd.Stdin = os.Stdin
		// The terminal signals the whole foreground group: a second interrupt would abort the Pulumi CLI.
		cmd.Cancel = func() error { return nil }
	} else {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	}

	err := cmd.Run()

	var exitErr *exec.ExitError
	if errors.As(err, &exitErr) {
		return WithStatus(max(exitErr.ExitCode(), 1), fmt.Errorf(
			"%s %s: %w, see above", filepath.Base(program), args[0], exitErr))
	}

	return err
}
