// Package talosopsexec says how the commands of a run call talosops. The program builds it from its own sources;
// programs of others have none, and find it on PATH. It is not an argument of a component, but a value of the context
// that components are made with.
package talosopsexec

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// How talosops is called: by TALOSOPS where that names a built one. No path is part of the command, so that the state
// is the same on every machine that the program runs on.
const (
	FromSources = `${TALOSOPS:-go run ./cmd/talosops} `
	onPath      = `${TALOSOPS:-talosops} `
)

type key struct{}

// With returns a context whose components call talosops by this command.
func With(ctx *pulumi.Context, command string) *pulumi.Context { return ctx.WithValue(key{}, command) }

// Command is how the components of a context call talosops.
func Command(ctx *pulumi.Context) string {
	if command, ok := ctx.Value(key{}).(string); ok {
		return command
	}

	return onPath
}

// Find returns an error where talosops is looked for on PATH and is not there: the first command would fail by it, when
// machines are made already.
func Find(ctx *pulumi.Context) error {
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
