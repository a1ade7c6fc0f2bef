// Package container runs commands of containers on the lab's machines. There are no images: a shell and a few programs
// really run, without access to files or the network of the host, and everything else runs in name only.
package container

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"
)

// ErrNotFound is returned if a container has no program with a name.
var ErrNotFound = errors.New("executable file not found in $PATH")

// statusNotFound is a shell's exit status for an unknown program.
const statusNotFound = 127

// Container is the environment of a container's programs.
type Container struct {
	Hostname string
	Env      []string // NAME=value
	// NVIDIA are the GPUs and tools of NVIDIA's container runtime; nil without it.
	NVIDIA *NVIDIA
	// Sleep waits for time of the lab's clock.
	Sleep func(ctx context.Context, d time.Duration) error
}

// Streams are the streams of a process. Stdin may be nil.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// TTY reports whether the streams are a terminal.
	TTY bool
}

var shells = []string{"sh", "bash", "ash"}

// CanRun reports whether the lab can run a command: its program and, for a shell's script, all programs in it.
func CanRun(command []string) bool {
	if len(command) == 0 {
		return false
	}

	name := path.Base(command[0])
	if !slices.Contains(shells, name) {
		return isProgram(name)
	}

	script, _, ok := shellScript(command)
	if !ok {
		return len(command) == 1
	}

	file, err := parser().Parse(strings.NewReader(script), name)
	if err != nil {
		return true // the shell reports the error
	}

	known := true

	syntax.Walk(file, func(node syntax.Node) bool {
		if call, ok := node.(*syntax.CallExpr); ok && len(call.Args) > 0 {
			word := call.Args[0].Lit()
			known = known && (interp.IsBuiltin(word) || isProgram(path.Base(word)) || declares(file, word))
		}

		return true
	})

	return known
}

// declares reports whether a script declares a function.
func declares(file *syntax.File, name string) bool {
	return slices.ContainsFunc(file.Stmts, func(s *syntax.Stmt) bool {
		f, ok := s.Cmd.(*syntax.FuncDecl)

		return ok && f.Name.Value == name
	})
}

func parser() *syntax.Parser { return syntax.NewParser(syntax.Variant(syntax.LangBash)) }

// shellScript returns the script that a shell is started with, and its parameters; -c may be combined with other
// options, as in -ec.
func shellScript(command []string) (script string, parameters []string, ok bool) {
	for i, word := range command[1:] {
		if !strings.HasPrefix(word, "-") || strings.HasPrefix(word, "--") {
			return "", nil, false
		}

		if strings.Contains(word, "c") && i+2 < len(command) {
			return command[i+2], command[min(i+4, len(command)):], true
		}
	}

	return "", nil, false
}

// Run runs a command to completion and returns its exit status, or ErrNotFound.
func (c Container) Run(ctx context.Context, command []string, s Streams) (int, error) {
	if len(command) == 0 || !c.hasProgram(path.Base(command[0])) {
		return 0, fmt.Errorf("exec: %q: %w", strings.Join(command[:min(1, len(command))], ""), ErrNotFound)
	}

	stdin, stop, err := sharedStdin(ctx, s.Stdin)
	if err != nil {
		return 0, fmt.Errorf("unable to prepare %q: %w", command[0], err)
	}
	defer stop()

	s.Stdin = stdin

	runner, err := c.runner(s, command)
	if err != nil {
		return 0, fmt.Errorf("unable to prepare %q: %w", command[0], err)
	}

	if !slices.Contains(shells, path.Base(command[0])) {
		err = runner.Run(ctx, callExpr(command))
	} else if script, _, ok := shellScript(command); ok {
		err = c.script(ctx, runner, script, s)
	} else {
		err = c.interactive(ctx, runner, s)
	}

	var status interp.ExitStatus

	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case errors.As(err, &status):
		return int(status), nil
	default:
		return 0, err
	}
}

// sharedStdin converts standard input to a file, so that a shell and its programs can take turns reading it, and reads
// end with the context. The interpreter would read any other reader to its end at once.
func sharedStdin(ctx context.Context, in io.Reader) (shared io.Reader, stop func(), err error) {
	if _, isFile := in.(*os.File); in == nil || isFile {
		return in, func() {}, nil
	}

	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}

	go func() { // ends with the input or with its reader
		_, _ = io.Copy(writer, in)
		_ = writer.Close()
	}()

	closed := context.AfterFunc(ctx, func() { _ = reader.Close() })

	return reader, func() {
		closed()

		_ = reader.Close()
	}, nil
}

// byteReader reads no further than the current line, and leaves the rest to the programs that it starts.
type byteReader struct{ io.Reader }

// Read implements io.Reader.
func (r byteReader) Read(b []byte) (int, error) { return r.Reader.Read(b[:min(1, len(b))]) }

// callExpr returns a command as a shell calls it, without expansion.
func callExpr(command []string) *syntax.CallExpr {
	words := make([]*syntax.Word, 0, len(command))
	for _, word := range command {
		words = append(words, &syntax.Word{Parts: []syntax.WordPart{&syntax.SglQuoted{Value: word}}})
	}

	return &syntax.CallExpr{Args: words}
}

func (c Container) script(ctx context.Context, runner *interp.Runner, script string, s Streams) error {
	file, err := parser().Parse(strings.NewReader(script), "sh")
	if err != nil {
		_, _ = fmt.Fprintf(s.Stderr, "%s\n", err)

		return interp.ExitStatus(2)
	}

	return runner.Run(ctx, file)
}

// interactive runs standard input line by line.
func (c Container) interactive(ctx context.Context, runner *interp.Runner, s Streams) error {
	if s.Stdin == nil {
		return nil
	}

	prompt := func() {
		if s.TTY {
			_, _ = io.WriteString(s.Stdout, "/ # ")
		}
	}

	var (
		last error
		text strings.Builder
	)

	prompt()

	for lines := bufio.NewScanner(byteReader{s.Stdin}); lines.Scan(); {
		text.WriteString(lines.Text() + "\n")

		file, err := parser().Parse(strings.NewReader(text.String()), "sh")
		if syntax.IsIncomplete(err) {
			continue
		}

		text.Reset()

		if err != nil {
			_, _ = fmt.Fprintf(s.Stderr, "sh: %s\n", err)
			last = interp.ExitStatus(2)
		} else {
			last = runner.Run(ctx, file)
		}

		if runner.Exited() || ctx.Err() != nil {
			return last
		}

		prompt()
	}

	return last
}

// runner returns a shell without access to the host.
func (c Container) runner(s Streams, command []string) (*interp.Runner, error) {
	var parameters []string

	options := []interp.RunnerOption{
		interp.Env(expand.ListEnviron(append([]string{
			"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOSTNAME=" + c.Hostname, "HOME=/root",
		}, c.Env...)...)),
		interp.StdIO(s.Stdin, s.Stdout, s.Stderr), interp.Dir("/"),
		interp.OpenHandler(c.open),
		interp.StatHandler(func(_ context.Context, name string, _ bool) (fs.FileInfo, error) {
			return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
		}),
		interp.ReadDirHandler2(func(_ context.Context, name string) ([]fs.DirEntry, error) {
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}),
		interp.ExecHandlers(func(interp.ExecHandlerFunc) interp.ExecHandlerFunc { return c.exec }),
	}

	if slices.Contains(shells, path.Base(command[0])) {
		parameters = shellOptions(command)
	}

	return interp.New(append(options, interp.Params(parameters...))...)
}

// shellOptions returns a shell's options without -c, and the parameters of its script.
func shellOptions(command []string) []string {
	var options []string

	for _, word := range command[1:] {
		letters, isOption := strings.CutPrefix(word, "-")
		if !isOption || strings.HasPrefix(letters, "-") {
			break
		}

		for _, letter := range letters {
			if strings.ContainsRune("eux", letter) {
				options = append(options, "-"+string(letter))
			}
		}
	}

	_, parameters, _ := shellScript(command)

	return append(append(options, "--"), parameters...)
}

// devNull is the only file of a container.
type devNull struct{}

func (devNull) Read([]byte) (int, error)    { return 0, io.EOF }
func (devNull) Write(b []byte) (int, error) { return len(b), nil }
func (devNull) Close() error                { return nil }

func (c Container) open(_ context.Context, name string, _ int, _ os.FileMode) (io.ReadWriteCloser, error) {
	if name == "/dev/null" {
		return devNull{}, nil
	}

	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}
