package engine_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"talos-proxmox/lab/engine"
	"talos-proxmox/lab/providers"
)

// who says which providers do the work in these tests.
var who = engine.StandIn

// talosops is the command that every run calls.
var talosops = built("talosops")

// built is where `make tools` builds a program.
func built(name string) string {
	path, err := filepath.Abs(filepath.Join(project, ".bin", name))
	if err != nil {
		panic(err)
	}

	return path
}

// TestMain ends at once, saying so, where the published plugins are asked for and are not there.
func TestMain(m *testing.M) {
	providers.RunAsPlugin()
	runAsProgram()
	runAsLanguageHost()

	// Programs that have components as others do find it here: they run in this process, which the CLI's environment
	// does not reach.
	if err := os.Setenv("TALOSOPS", talosops); err != nil {
		panic(err)
	}

	flag.Var(&who, "providers", "who does the work in engine tests")
	flag.Parse()

	if missing := providers.Missing(); who == engine.Published && len(missing) > 0 {
		fmt.Println(
			"engine tests with the published plugins: not run, because these are not installed:", providers.List(missing),
		)

		return
	}

	os.Exit(m.Run())
}
