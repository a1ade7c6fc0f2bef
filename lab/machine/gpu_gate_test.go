package machine_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"

	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/stretchr/testify/require"
)

// interruptOn interrupts a command once it has printed a text.
type interruptOn struct {
	output  bytes.Buffer // not embedded: a copy would read into it, past Write
	command *exec.Cmd
	text    []byte
}

// Write implements io.Writer.
func (w *interruptOn) Write(p []byte) (int, error) {
	n, err := w.output.Write(p)
	if len(w.text) > 0 && bytes.Contains(w.output.Bytes(), w.text) {
		_ = w.command.Process.Signal(os.Interrupt)
	}

	return n, err
}

// runGate runs `talosops wait` for the cluster and the GPUs of a worker, and returns its output. It interrupts it at a
// text, if one is given.
func (l *lab) runGate(kubeconfig []byte, n, gpus int, until string) (string, error) {
	l.Helper()

	talosconfig, err := l.talosconfig(role.MakeSet(role.Admin), l.address(11)).Bytes()
	require.NoError(l.T, err)

	request, err := json.Marshal(map[string]any{
		"talosconfig":   string(talosconfig),
		"kubeconfig":    string(kubeconfig),
		"timeout":       patience.String(),
		"interval":      "100ms",
		"controlPlanes": []any{map[string]string{"name": "node-11", "address": l.address(11)}},
		"workers":       []any{map[string]string{"name": fmt.Sprintf("node-%d", n), "address": l.address(n)}},
		"gpus":          []any{map[string]any{"node": fmt.Sprintf("node-%d", n), "count": gpus}},
	})
	require.NoError(l.T, err)

	command := exec.CommandContext(l.Context(), l.tool("talosops"), "wait")
	output := &interruptOn{command: command, text: []byte(until)}
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(request), output, output
	err = command.Run()

	return output.output.String(), err
}
