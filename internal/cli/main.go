// Package cli has the common code of the project's command lines.
package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Main runs a command line to completion, and exits with [Status] if it fails. An interrupt cancels its context; a
// second one ends the program at once.
func Main(root *cobra.Command) {
	addUsageToErrors(root)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	cmd, err := root.ExecuteContextC(ctx)

	stop()

	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s\n", root.Name(), err)
		os.Exit(Status(cmd, err))
	}
}

// addUsageToErrors appends the usage line to errors about a command's arguments.
func addUsageToErrors(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return fmt.Errorf("%w; usage: %s", err, cmd.UseLine())
			}

			return nil
		}
	}

	for _, sub := range cmd.Commands() {
		addUsageToErrors(sub)
	}
}
