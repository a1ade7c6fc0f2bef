package command

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/infer"
)

// logging selects the outputs of a command that are shown while it runs; nil = both. Resources capture both anyway.
type logging string

const (
	logStdout logging = "stdout"
	logStderr logging = "stderr"
	logBoth   logging = "stdoutAndStderr"
	logNone   logging = "none"
)

// Values implements infer.Enum.
func (logging) Values() []infer.EnumValue[logging] {
	return []infer.EnumValue[logging]{
		{Name: string(logStdout), Value: logStdout},
		{Name: string(logStderr), Value: logStderr},
		{Name: string(logBoth), Value: logBoth},
		{Name: string(logNone), Value: logNone},
	}
}

func (l *logging) shows(stream logging) bool { return l == nil || *l == logBoth || *l == stream }

// recorder captures the output of a command: each stream for the resource's outputs, and both in order for an error.
// It shows complete lines in the engine's progress.
type recorder struct {
	mu   sync.Mutex
	both bytes.Buffer

	stdout, stderr stream
}

type stream struct {
	recorder *recorder
	text     bytes.Buffer
	// show is nil if the stream is not shown.
	show func(line string)
	line []byte
}

func newRecorder(ctx context.Context, l *logging) *recorder {
	r := &recorder{}
	r.stdout.recorder, r.stderr.recorder = r, r
	show := func(line string) { p.GetLogger(ctx).InfoStatus(line) }

	if l.shows(logStdout) {
		r.stdout.show = show
	}

	if l.shows(logStderr) {
		r.stderr.show = show
	}

	return r
}

// Write implements io.Writer. It never fails.
func (s *stream) Write(b []byte) (int, error) {
	s.recorder.mu.Lock()
	defer s.recorder.mu.Unlock()

	s.recorder.both.Write(b)
	s.text.Write(b)

	if s.show == nil {
		return len(b), nil
	}

	s.line = append(s.line, b...)

	for {
		line, rest, complete := bytes.Cut(s.line, []byte("\n"))
		if !complete {
			return len(b), nil
		}

		s.show(string(line))
		s.line = rest
	}
}

// close shows the incomplete last lines.
func (r *recorder) close() {
	r.mu.Lock()
	defer r.mu.Unlock()

	for _, s := range []*stream{&r.stdout, &r.stderr} {
		if len(s.line) > 0 {
			s.show(string(s.line))
			s.line = nil
		}
	}
}

func (r *recorder) output() output {
	r.mu.Lock()
	defer r.mu.Unlock()

	return output{
		Stdout: strings.TrimSuffix(r.stdout.text.String(), "\n"), Stderr: strings.TrimSuffix(r.stderr.text.String(), "\n"),
	}
}

// failure returns an error with the command and its output.
func (r *recorder) failure(err error, command string) error {
	r.mu.Lock()
	defer r.mu.Unlock()

	return fmt.Errorf("%w: running %q:\n%s", err, command, r.both.String())
}
