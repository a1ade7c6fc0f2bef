package engine_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"talos-proxmox/lab/engine"
	"talos-proxmox/lab/providers"
)

// who says which providers do the work in these tests.
var who = engine.StandIn

// TestMain ends at once, saying so, where the published plugins are asked for and are not there.
func TestMain(m *testing.M) {
	providers.RunAsPlugin()

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
