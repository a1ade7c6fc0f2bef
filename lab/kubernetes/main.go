// Command labkube is etcd, Kubernetes' control plane and kubectl in one binary, for the lab's machines. The first
// argument, or the name of the binary, selects the part. A part reports the version of --as, so that one build serves
// every cluster whose version it can emulate.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

func main() {
	call, err := parse(os.Args)
	if err == nil && call.version != "" {
		err = parts[call.part].report(call.version)
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, "labkube:", err)
		os.Exit(2)
	}

	if call.version == "" {
		reportBuild()
	}

	os.Args = append([]string{call.part}, call.args...)
	os.Exit(parts[call.part].run())
}

// call is a parsed command line.
type call struct {
	part, version string
	args          []string
}

// parse reads the command line up to the part's own arguments.
func parse(args []string) (call, error) {
	if name := filepath.Base(args[0]); parts[name].run != nil {
		return call{part: name, args: args[1:]}, nil
	}

	var c call

	args = args[1:]

	if len(args) > 0 && args[0] == "--as" {
		if len(args) < 2 {
			return c, fmt.Errorf("--as needs a version, such as --as %s", buildVersion())
		}

		c.version, args = args[1], args[2:]
	}

	if len(args) == 0 {
		return c, fmt.Errorf("no part is set; usage: labkube [--as VERSION] %s [ARGUMENT…]", partNames("|"))
	}

	if parts[args[0]].run == nil {
		return c, fmt.Errorf("%q is not part of labkube; it has %s", args[0], partNames(", "))
	}

	c.part, c.args = args[0], args[1:]

	return c, nil
}
