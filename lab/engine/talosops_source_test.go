package engine_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/talosopsexec"
)

// TestTalosopsFromSource runs the command that the states of stacks have: without TALOSOPS it builds talosops, which is
// a module of its own.
func TestTalosopsFromSource(t *testing.T) {
	t.Parallel()

	command := exec.CommandContext(t.Context(), "sh", "-c", talosopsexec.FromSources+"versions")
	command.Dir, command.Stdin = project, strings.NewReader("{}")
	command.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "TALOSOPS=") })

	out, err := command.CombinedOutput()
	require.Error(t, err)
	assert.True(t, strings.HasPrefix(string(out), "talosops: the request has "), string(out))
}
