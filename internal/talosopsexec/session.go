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

type programKey struct{}

// WithProgram returns a context in which Start runs the talosops at a path; commands of resources are not affected.
func WithProgram(ctx *pulumi.Context, path string) *pulumi.Context {
	return ctx.WithValue(programKey{}, path)
}

// Session is a running talosops that says when the caller may do something, and waits until the caller has finished.
type Session struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr sync.WaitGroup
	// failure has the lines of its error message, which begins with its name.
	failure []string
}

// errorPrefix begins talosops' error message; the lines before it are progress.
const errorPrefix = "talosops: "

// shutdownTimeout is how long talosops may take to end after an interrupt.
const shutdownTimeout = 10 * time.Second

// Start runs a verb of talosops with a request, and reports its progress line by line.
func Start(ctx *pulumi.Context, verb string, request any, progress func(line string)) (*Session, error) {
	//nolint:gosec // the project's own program, as the commands of a run call it
	cmd := exec.CommandContext(ctx.Context(), "sh", "-c", "exec "+Command(ctx)+verb)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = shutdownTimeout

	if path, ok := ctx.Value(programKey{}).(string); ok {
		cmd.Env = append(os.Environ(), "TALOSOPS="+path)
	}

	s := &Session{cmd: cmd}

	in, err := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	stderr, errErr := cmd.StderrPipe()

	if err := errors.Join(err, outErr, errErr); err != nil {
		return nil, fmt.Errorf("unable to start talosops %s: %w", verb, err)
	}

	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("unable to start talosops %s: %w", verb, err)
	}

	s.in, s.out = in, bufio.NewReader(out)
	s.stderr.Go(func() { s.readStderr(stderr, progress) })

	if err := s.Send(request); err != nil {
		return nil, s.end(err)
	}

	return s, nil
}

// Query runs a verb that needs no more than its request, and reads its result.
func Query(ctx *pulumi.Context, verb string, request, result any) error {
	s, err := Start(ctx, verb, request, func(string) {})
	if err != nil {
		return err
	}

	_ = s.in.Close() // the request is complete

	if err := s.Receive(result); err != nil {
		return err
	}

	return s.end(nil)
}

// readStderr reports progress and collects the error message.
func (s *Session) readStderr(stderr io.Reader, progress func(line string)) {
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		text, failed := strings.CutPrefix(lines.Text(), errorPrefix)
		if failed || len(s.failure) > 0 {
			s.failure = append(s.failure, text)

			continue
		}

		progress(text)
	}

	_, _ = io.Copy(io.Discard, stderr) // a line that is too long
}

// Send writes a value as a line of JSON.
func (s *Session) Send(value any) error { return json.NewEncoder(s.in).Encode(value) }

// Receive reads a line of JSON. If talosops ended instead, it returns talosops' error.
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

// Finish tells talosops that the caller has finished, and waits until it has ended. It returns talosops' error.
func (s *Session) Finish(outcome any) error { return s.end(s.Send(outcome)) }

func (s *Session) end(sessionErr error) error {
	_ = s.in.Close()

	_, _ = io.Copy(io.Discard, s.out)

	s.stderr.Wait()

	err := s.cmd.Wait()

	switch {
	case len(s.failure) > 0:
		return errors.New(strings.Join(s.failure, "\n"))
	case err != nil:
		return fmt.Errorf("talosops ended: %w", err)
	default:
		return sessionErr
	}
}
