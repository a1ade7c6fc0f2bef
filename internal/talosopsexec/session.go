package talosopsexec

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

type builtKey struct{}

// WithBuilt returns a context whose own calls of talosops, which are not those of commands, use a built one.
func WithBuilt(ctx *pulumi.Context, path string) *pulumi.Context {
	return ctx.WithValue(builtKey{}, path)
}

// Session is a call of talosops that says when something may be done, and hears when that is over.
type Session struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	lines sync.WaitGroup
	// failure is what it says of its end, which begins with its name.
	failure []string
}

// errorLine begins what talosops says of its failure; lines before it are its progress.
const errorLine = "talosops: "

// patience is how long talosops may take to end by itself where a run is interrupted.
const patience = 10 * time.Second

// Start calls a verb of talosops with a request, and passes on its progress line by line.
func Start(ctx *pulumi.Context, verb string, request any, progress func(line string)) (*Session, error) {
	//nolint:gosec // the project's own program, as the commands of a run call it
	cmd := exec.CommandContext(ctx.Context(), "sh", "-c", "exec "+Command(ctx)+verb)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = patience

	if path, ok := ctx.Value(builtKey{}).(string); ok {
		cmd.Env = append(os.Environ(), "TALOSOPS="+path)
	}

	s := &Session{cmd: cmd}

	in, err := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	said, errErr := cmd.StderrPipe()

	if err := errors.Join(err, outErr, errErr); err != nil {
		return nil, fmt.Errorf("unable to call talosops %s: %w", verb, err)
	}

	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("unable to call talosops %s: %w", verb, err)
	}

	s.in, s.out = in, bufio.NewReader(out)
	s.lines.Go(func() { s.pass(said, progress) })

	if err := s.send(request); err != nil {
		return nil, s.end(err)
	}

	return s, nil
}

// pass passes progress on and keeps what is said of a failure.
func (s *Session) pass(said io.Reader, progress func(line string)) {
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		text, failed := strings.CutPrefix(lines.Text(), errorLine)
		if failed || len(s.failure) > 0 {
			s.failure = append(s.failure, text)

			continue
		}

		progress(text)
	}

	_, _ = io.Copy(io.Discard, said) // a line that is too long
}

// send writes a value as a line of JSON.
func (s *Session) send(value any) error { return json.NewEncoder(s.in).Encode(value) }

// Receive reads a line of JSON; the error is what talosops said where it ended instead.
func (s *Session) Receive(into any) error {
	line, err := s.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, into)
	}

	if err != nil {
		return s.end(err)
	}

	return nil
}

// Finish tells talosops that what it waited for is over, and waits until it has done its part; the error is what it
// said of its failure.
func (s *Session) Finish(outcome any) error { return s.end(s.send(outcome)) }

func (s *Session) end(before error) error {
	_ = s.in.Close()

	_, _ = io.Copy(io.Discard, s.out)

	s.lines.Wait()

	err := s.cmd.Wait()

	switch {
	case len(s.failure) > 0:
		return errors.New(strings.Join(s.failure, "\n"))
	case err != nil:
		return fmt.Errorf("talosops ended: %w", err)
	default:
		return before
	}
}
