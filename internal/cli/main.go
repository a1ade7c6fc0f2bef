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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	cmd, err := root.ExecuteContextC(ctx)

	stop()

	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s\n", root.Name(), err)
		os.Exit(Status(cmd, err))
	}
}
