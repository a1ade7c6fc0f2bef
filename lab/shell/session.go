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

// signalError is the cause that ends a command to which the client sent a signal.
type signalError struct{ status int }

func (e signalError) Error() string { return fmt.Sprintf("signal %d", e.status-128) }

func signalStatuses() map[ssh.Signal]int {
	return map[ssh.Signal]int{
		ssh.SIGTERM: statusTerminated, ssh.SIGINT: statusInterrupted, ssh.SIGHUP: statusHungUp, ssh.SIGKILL: statusKilled,
	}
}

// session runs the client's command; there are no interactive shells. The command ends with its client: on a signal, on
// a lost connection, or when its output cannot be delivered.
func (s *Server) session(session ssh.Session) {
	ctx, cancel := context.WithCancelCause(session.Context())
	defer cancel(nil)

	// Larger than any client needs: the SSH library holds a lock while it sends.
	received := make(chan ssh.Signal, 1024)
	session.Signals(received)

	go func() {
		for {
			select {
			case signal := <-received:
				if status, known := signalStatuses()[signal]; known {
					cancel(signalError{status})
				}
			case <-ctx.Done():
				return
			}
		}
	}()

	status := s.run(ctx, session.RawCommand(), s.environment(session.Environ()),
		session, &output{session, cancel}, &output{session.Stderr(), cancel})
	_ = session.Exit(status)
}

// output ends a command whose client does not read its output.
type output struct {
	io.Writer

	cancel context.CancelCauseFunc
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.Writer.Write(b)
	if err != nil {
		o.cancel(signalError{statusHungUp})
	}

	return n, err
}

// environment returns the variables that sshd sets at a login of root, and those that the client sent.
func (s *Server) environment(fromClient []string) []string {
	path := s.localPath("/", "/usr/sbin")
	if localPATH := os.Getenv("PATH"); localPATH != "" {
		path += ":" + localPATH
	}

	env := []string{
		"HOST_ROOT=" + s.root, "HOME=" + s.localPath("/", "/root"), "TMPDIR=" + s.localPath("/", "/tmp"), "PATH=" + path,
		"USER=" + rootUser, "LOGNAME=" + rootUser, "SHELL=/bin/bash", "LANG=C.UTF-8",
	}

	for _, variable := range fromClient {
		name, _, _ := strings.Cut(variable, "=")
		if syntax.ValidName(name) && name != "PATH" {
			env = append(env, variable)
		}
	}

	return env
}

// run interprets a command like bash and returns its exit status.
func (s *Server) run(ctx context.Context, command string, environ []string, in io.Reader, out, errOut io.Writer) int {
	// /proc depends on the VMs.
	if err := s.dc.ShowHost(s.host); err != nil {
		fmt.Fprintf(errOut, "lab: %s\n", err) //nolint:errcheck
	}

	runner, err := s.runner(environ, s.localPath("/", "/root"), in, out, errOut)
	if err != nil {
		fmt.Fprintf(errOut, "bash: %s\n", err) //nolint:errcheck

		return statusFailed
	}

	err = runScript(ctx, runner, command, "bash")

	return exitStatus(ctx, err, errOut)
}

func (s *Server) runner(
	environ []string, dir string, in io.Reader, out, errOut io.Writer, more ...interp.RunnerOption,
) (*interp.Runner, error) {
	options := []interp.RunnerOption{
		interp.Env(expand.ListEnviron(environ...)),
		interp.Dir(dir),
		interp.StdIO(in, out, errOut),
		interp.CallHandler(s.callHandler),
		interp.OpenHandler(s.open),
		interp.StatHandler(s.stat),
		interp.AccessHandler(s.access),
		interp.ReadDirHandler2(s.readDir),
		interp.ExecHandlers(s.exec),
	}

	return interp.New(append(options, more...)...)
}

// syntaxError is a script that cannot be parsed.
type syntaxError struct{ error }

func runScript(ctx context.Context, runner *interp.Runner, text, name string) error {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), name)
	if err != nil {
		return syntaxError{err}
	}

	return runner.Run(ctx, file)
}

// exitStatus returns a script's exit status, and prints errors of the interpreter to standard error.
func exitStatus(ctx context.Context, err error, errOut io.Writer) int {
	var (
		signal    signalError
		syntaxErr syntaxError
		exit      interp.ExitStatus
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
	case errors.As(err, &syntaxErr):
		fmt.Fprintf(errOut, "bash: %s\n", err) //nolint:errcheck

		return statusUsage
	default:
		fmt.Fprintf(errOut, "bash: %s\n", err) //nolint:errcheck

		return statusFailed
	}
}
