package shell

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"mvdan.cc/sh/v3/syntax"
)

// realBash runs commands with this computer's bash. The host's own commands are programs in its /usr/sbin, which have
// the server run them.
type realBash struct {
	listener net.Listener
	token    string // proves to the server that a call comes from such a program
}

// keptPrograms are commands of the lab that are this computer's own for this computer's bash.
var keptPrograms = []string{"bash", "flock", "timeout"}

func startBash(s *Server) (*realBash, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}

	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}

			go s.answer(conn)
		}
	}()

	return &realBash{listener, rand.Text()}, nil
}

// install writes a program for each command, which has the server run it. The program sends its process id, its folder,
// and the command line; the answer is the exit status. Its outputs have further numbers, because bash replaces the usual
// ones while it sends.
func (b *realBash) install(folder string, commands []string) error {
	_, port, err := net.SplitHostPort(b.listener.Addr().String())
	if err != nil {
		return err
	}

	program := fmt.Sprintf(`#!/bin/bash
exec 3<>/dev/tcp/127.0.0.1/%s 4>&1 5>&2 || exit 126
printf '%%s\0' %s "$$" "$PWD" $(($# + 1)) "${0##*/}" "$@" >&3
read -r status <&3
exit "${status:-126}"
`, port, b.token)

	// A process that is forked meanwhile would keep the file open for writing, and it could not be started.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()

	for _, name := range commands {
		if slices.Contains(keptPrograms, name) {
			continue
		}

		//nolint:gosec // an executable
		if err := os.WriteFile(filepath.Join(folder, name), []byte(program), 0o700); err != nil {
			return err
		}
	}

	return nil
}

// answer runs the command of a program in /usr/sbin, without standard input, until the program ends.
func (s *Server) answer(conn net.Conn) {
	defer conn.Close() //nolint:errcheck

	received := bufio.NewReader(conn)
	next := func() string {
		text, _ := received.ReadString(0) //nolint:errcheck // an incomplete call has no words

		return strings.TrimSuffix(text, "\x00")
	}

	if next() != s.real.token {
		return
	}

	pid, dir := next(), next()
	count, _ := strconv.Atoi(next()) //nolint:errcheck // as above
	words := make([]string, 0, count)

	for range count {
		word, err := syntax.Quote(next(), syntax.LangBash)
		if err != nil {
			return
		}

		words = append(words, word)
	}

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	go func() {
		_, _ = received.ReadByte()

		cancel()
	}()

	out, closeOut := openOutput(pid, 4)
	errOut, closeErr := openOutput(pid, 5)
	status := s.interpret(ctx, strings.Join(words, " "), s.environment(nil), dir, nil, out, errOut)

	closeOut()
	closeErr()
	fmt.Fprintln(conn, status) //nolint:errcheck // the program may have ended
}

// openOutput opens an output of a process; it discards what cannot be delivered.
func openOutput(pid string, fd int) (io.Writer, func()) {
	// Opening a pipe that nobody reads would wait.
	file, err := os.OpenFile(
		fmt.Sprintf("/proc/%s/fd/%d", filepath.Base(pid), fd), os.O_WRONLY|os.O_APPEND|syscall.O_NONBLOCK, 0,
	)
	if err != nil {
		return io.Discard, func() {}
	}

	return file, func() { _ = file.Close() }
}

// run runs a command in a process group of its own, which gets the client's signals, and returns its exit status.
func (b *realBash) run(
	ctx context.Context, command string, environ []string, dir string, in io.Reader, out, errOut io.Writer,
) int {
	c := exec.CommandContext(ctx, "bash", "-c", command)
	c.Env, c.Dir, c.Stdin, c.Stdout, c.Stderr = environ, dir, in, out, errOut
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error {
		signal := signalError{statusHungUp}
		errors.As(context.Cause(ctx), &signal)

		return syscall.Kill(-c.Process.Pid, syscall.Signal(signal.status-128))
	}

	var exit *exec.ExitError

	err := c.Run()
	if errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return 128 + int(status.Signal())
		}

		return exit.ExitCode()
	}

	if err != nil && ctx.Err() == nil {
		fmt.Fprintf(errOut, "bash: %s\n", err) //nolint:errcheck

		return statusFailed
	}

	return 0
}
