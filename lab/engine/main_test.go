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

// testProviders selects the providers of these tests.
var testProviders = engine.StandIn

// talosops is the command that every run calls.
var talosops = toolPath("talosops")

// toolPath is where `make tools` builds a program.
func toolPath(name string) string {
	path, err := filepath.Abs(filepath.Join(project, ".bin", name))
	if err != nil {
		panic(err)
	}

	return path
}

// TestMain fails if the published plugins are requested and not installed.
func TestMain(m *testing.M) {
	providers.RunAsPlugin()
	runAsProgram()
	runAsLanguageHost()

	// Programs that use the components from outside run in this process, which does not have the CLI's environment.
	if err := os.Setenv("TALOSOPS", talosops); err != nil {
		panic(err)
	}

	flag.Var(&testProviders, "providers", "who does the work in engine tests")
	flag.Parse()

	if missing := providers.Missing(); testProviders == engine.Published && len(missing) > 0 {
		fmt.Fprintln(os.Stderr, "the published plugins are not installed:", providers.List(missing))
		os.Exit(1)
	}

	os.Exit(m.Run())
}
