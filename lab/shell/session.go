package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/gliderlabs/ssh"
	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"
)

// Exit statuses of bash.
const (
	statusFailed      = 1
	statusUsage       = 2
	statusNotFound    = 127
	statusTerminated  = 128 + 15
	statusInterrupted = 128 + 2
	statusHungUp      = 128 + 1
	statusKilled      = 128 + 9
)

// errSignal ends a command that the client sent a signal.
type errSignal struct{ status int }

func (e errSignal) Error() string { return fmt.Sprintf("signal %d", e.status-128) }

func signals() map[ssh.Signal]int {
	return map[ssh.Signal]int{
		ssh.SIGTERM: statusTerminated, ssh.SIGINT: statusInterrupted, ssh.SIGHUP: statusHungUp, ssh.SIGKILL: statusKilled,
	}
}

// session runs one command, which the client names: there is no shell of its own to talk to. The command ends with its
// client: at a signal, when the connection breaks, or when no one takes its output any more.
func (s *Server) session(session ssh.Session) {
	ctx, end := context.WithCancelCause(session.Context())
	defer end(nil)

	// More room than any client fills: the SSH library holds a lock while it delivers.
	received := make(chan ssh.Signal, 1024)
	session.Signals(received)

	go func() {
		for {
			select {
			case signal := <-received:
				if status, known := signals()[signal]; known {
					end(errSignal{status})
				}
			case <-ctx.Done():
				return
			}
		}
	}()

	status := s.run(ctx, session.RawCommand(), s.environment(session.Environ()),
		session, &output{session, end}, &output{session.Stderr(), end})
	_ = session.Exit(status)
}

// output ends a command whose client no longer listens.
type output struct {
	io.Writer

	end context.CancelCauseFunc
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.Writer.Write(b)
	if err != nil {
		o.end(errSignal{statusHungUp})
	}

	return n, err
}

// environment is what sshd gives a login of root, and what the client sent along.
func (s *Server) environment(sent []string) []string {
	path := s.inside("/", "/usr/sbin")
	if own := os.Getenv("PATH"); own != "" {
		path += ":" + own
	}

	base := []string{
		"HOST_ROOT=" + s.root, "HOME=" + s.inside("/", "/root"), "TMPDIR=" + s.inside("/", "/tmp"), "PATH=" + path,
		"USER=" + rootUser, "LOGNAME=" + rootUser, "SHELL=/bin/bash", "LANG=C.UTF-8",
	}

	for _, variable := range sent {
		name, _, _ := strings.Cut(variable, "=")
		if syntax.ValidName(name) && name != "PATH" {
			base = append(base, variable)
		}
	}

	return base
}

// run interprets a command as bash would and returns its exit status.
func (s *Server) run(ctx context.Context, command string, environ []string, in io.Reader, out, errOut io.Writer) int {
	// What /proc says changes with the VMs.
	if err := s.dc.ShowHost(s.host); err != nil {
		fmt.Fprintf(errOut, "lab: %s\n", err) //nolint:errcheck
	}

	runner, err := s.runner(environ, s.inside("/", "/root"), in, out, errOut)
	if err != nil {
		fmt.Fprintf(errOut, "bash: %s\n", err) //nolint:errcheck

		return statusFailed
	}

	err = runText(ctx, runner, command, "bash")

	return statusOf(ctx, err, errOut)
}

func (s *Server) runner(
	environ []string, dir string, in io.Reader, out, errOut io.Writer, more ...interp.RunnerOption,
) (*interp.Runner, error) {
	options := []interp.RunnerOption{
		interp.Env(expand.ListEnviron(environ...)),
		interp.Dir(dir),
		interp.StdIO(in, out, errOut),
		interp.CallHandler(s.call),
		interp.OpenHandler(s.open),
		interp.StatHandler(s.stat),
		interp.AccessHandler(s.access),
		interp.ReadDirHandler2(s.readDir),
		interp.ExecHandlers(s.exec),
	}

	return interp.New(append(options, more...)...)
}

// errSyntax is a script that cannot be read.
type errSyntax struct{ error }

func runText(ctx context.Context, runner *interp.Runner, text, name string) error {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), name)
	if err != nil {
		return errSyntax{err}
	}

	return runner.Run(ctx, file)
}

// statusOf turns the end of a script into an exit status, and says on standard error what the interpreter could not do.
func statusOf(ctx context.Context, err error, errOut io.Writer) int {
	var (
		signal errSignal
		wrong  errSyntax
		exit   interp.ExitStatus
	)

	switch {
	case err == nil:
		return 0
	case errors.As(context.Cause(ctx), &signal):
		return signal.status
	case ctx.Err() != nil:
		return statusHungUp
	case errors.As(err, &exit):
		return int(exit)
	case errors.As(err, &wrong):
		fmt.Fprintf(errOut, "bash: %s\n", err) //nolint:errcheck

		return statusUsage
	default:
		fmt.Fprintf(errOut, "bash: %s\n", err) //nolint:errcheck

		return statusFailed
	}
}
