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

// Program is one that a command calls, because its libraries are too large for the command's own, or because it is
// somebody else's.
type Program struct {
	Name string
	Has  string // what it has, in words
	Make string // the command that builds it
}

// Find looks beside this program, in the project's .bin and on PATH.
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
			"minutes, once), then run the same again", p.Name, p.Has, strings.Join(places, ", "), p.Make)
	}

	return found, nil
}

// at is the absolute path that a user names, or where the program is found.
func (p Program) at(named, project string) (string, error) {
	if named == "" {
		return p.Find(project)
	}

	path, err := filepath.Abs(named)
	if err != nil {
		return "", fmt.Errorf("unable to find %s: %w", named, err)
	}

	return path, nil
}

// Run runs a program for a person: in a folder, with variables beside those of this process, its output to stdout and
// stderr. An interrupt reaches it once: from the terminal, or from here. Its exit status is that of the error.
func Run(
	ctx context.Context, folder string, environment []string, stdout, stderr io.Writer, program string, args ...string,
) error {
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // one of this project's own, or the user's
	cmd.Dir, cmd.Stdout, cmd.Stderr = folder, stdout, stderr

	cmd.Env = append(append(os.Environ(), environment...), "PULUMI_SKIP_UPDATE_CHECK=true")

	if term.IsTerminal(int(os.Stdin.Fd())) { //nolint:gosec // a file descriptor
		cmd.Stdin = os.Stdin
		// The terminal signals its whole foreground group: a second interrupt would make the Pulumi CLI drop its work.
		cmd.Cancel = func() error { return nil }
	} else {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	}

	err := cmd.Run()

	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return WithStatus(max(ended.ExitCode(), 1), fmt.Errorf(
			"%s %s: %w, see above", filepath.Base(program), args[0], ended))
	}

	return err
}
