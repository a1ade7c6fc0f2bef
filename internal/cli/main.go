// Package cli runs the command lines of the project's programs.
package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Main runs a command line to completion, and exits with [Status] if it fails. An interrupt asks it to end;
// a second one ends the program at once.
func Main(root *cobra.Command) {
	nameUsage(root)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	cmd, err := root.ExecuteContextC(ctx)

	stop()

	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s\n", root.Name(), err)
		os.Exit(Status(cmd, err))
	}
}

// nameUsage has errors about the arguments of commands say how they are called.
func nameUsage(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return fmt.Errorf("%w; usage: %s", err, cmd.UseLine())
			}

			return nil
		}
	}

	for _, sub := range cmd.Commands() {
		nameUsage(sub)
	}
}
