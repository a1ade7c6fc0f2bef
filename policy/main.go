// Command policy is the CrossGuard policy pack of talos-proxmox, for `pulumi preview --policy-pack policy` and `pulumi
// up`. Pulumi starts it with the address of its engine; `check FILE…` reports unknown policies and options of
// policy-config.json files instead.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/policyx"

	"talos-proxmox/policy/rules"
)

// gcPercent is the growth of the memory in use before garbage is collected. The pack lives as long as one run, and the
// engine waits for each of its answers.
const gcPercent = 1000

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) > 0 && args[0] == "check" {
		var problems []error
		for _, path := range args[1:] {
			problems = append(problems, rules.CheckConfigFile(path))
		}

		return errors.Join(problems...)
	}

	debug.SetGCPercent(gcPercent)

	if err := policyx.Main(rules.NewPack); err != nil {
		return fmt.Errorf("policy: %w", err)
	}

	return nil
}
