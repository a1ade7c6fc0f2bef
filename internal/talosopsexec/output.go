package talosopsexec

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
)

// Output runs a verb of a built talosops, for commands beside runs, and returns its result, also after a failure. Its
// progress and its error message go to stderr. If the context ends, it is interrupted, and reports where it stopped.
func Output(
	ctx context.Context, program, verb string, request []byte, stderr io.Writer, options ...string,
) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, append([]string{verb}, options...)...) //nolint:gosec // the project's own
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = shutdownTimeout

	var stdout bytes.Buffer

	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(request), &stdout, stderr
	err := cmd.Run()

	return stdout.Bytes(), err
}
