// Package talosopsexec determines how the commands of a run call talosops. The project's program builds it from source;
// other programs find it on PATH. It is a value of the context that components are created with, not an argument.
package talosopsexec

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// Commands that call talosops; TALOSOPS is the path of a built one. The commands contain no path, so that the state is
// the same on every machine.
const (
	FromSources = `${TALOSOPS:-go run ./cmd/talosops} `
	onPath      = `${TALOSOPS:-talosops} `
)

type commandKey struct{}

// WithCommand returns a context whose components call talosops with this command.
func WithCommand(ctx *pulumi.Context, command string) *pulumi.Context {
	return ctx.WithValue(commandKey{}, command)
}

// Command returns the command with which the components of a context call talosops.
func Command(ctx *pulumi.Context) string {
	if command, ok := ctx.Value(commandKey{}).(string); ok {
		return command
	}

	return onPath
}

// CheckInstalled returns an error if talosops has to be on PATH and is not there. Otherwise the first command would
// fail, when machines already exist.
func CheckInstalled(ctx *pulumi.Context) error {
	if Command(ctx) != onPath {
		return nil
	}

	name := cmp.Or(os.Getenv("TALOSOPS"), "talosops")
	if words := strings.Fields(name); len(words) > 0 {
		name = words[0]
	}

	if _, err := exec.LookPath(name); err != nil {
		return fmt.Errorf("unable to find talosops, which does what no provider does: %w: build it in a checkout of "+
			"talos-proxmox (go build -C talosops -o ~/.local/bin/talosops .) into a folder of PATH, or set TALOSOPS to its path", err)
	}

	return nil
}
