// Command lab simulates a Proxmox data centre with Talos machines on this computer's loopback addresses, and runs the
// project's program on it with the real Pulumi engine.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/terminal/noquery"
	"talos-proxmox/lab/engine"
	"talos-proxmox/lab/providers"
)

// globalFlags are the flags of all commands.
type globalFlags struct {
	project string
	dir     string
}

func main() {
	noquery.Restore()
	providers.RunAsPlugin()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	err := newRoot().ExecuteContext(ctx)
	if err == nil {
		return
	}

	fmt.Fprintln(os.Stderr, "lab:", err)

	code := 1
	if exit := new(engine.ExitError); errors.As(err, &exit) {
		code = exit.Code
	}

	os.Exit(code)
}

func newRoot() *cobra.Command {
	f := &globalFlags{}

	root := &cobra.Command{
		Use:   "lab",
		Short: "A Proxmox data centre with Talos machines, on loopback",
		Long: `The lab is a Proxmox VE data centre, its hosts' shells, the Image Factory and Talos machines in one process
on loopback addresses. The project's program runs against it on the real Pulumi engine, without hardware and without
touching your own Pulumi.

  lab start          start the lab in the background
  lab up             deploy the stack to it
  lab status         hosts, VMs and machines
  lab destroy        destroy the stack
  lab stop           stop the lab; its state stays in .lab/`,
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			// The user's passphrase is not the lab's, and would take precedence over its file.
			if err := os.Unsetenv("PULUMI_CONFIG_PASSPHRASE"); err != nil {
				return fmt.Errorf("unable to unset PULUMI_CONFIG_PASSPHRASE: %w", err)
			}

			return f.setDefaults()
		},
	}

	root.PersistentFlags().StringVar(
		&f.project, "project", "", "folder of Pulumi.yaml (default: this one or the nearest above it)",
	)
	root.PersistentFlags().StringVar(&f.dir, "dir", "", "the lab's folder (default: .lab in the project)")
	root.AddCommand(newServe(f), newStart(f), newStop(f), newStatus(f), newHost(f), newFault(f))
	root.AddCommand(newConfigure(f), newEnvironment(f))
	root.AddCommand(newOperations(f)...)

	return root
}

// setDefaults finds the project's and the lab's folders.
func (f *globalFlags) setDefaults() error {
	if f.project == "" {
		dir, err := os.Getwd()
		if err != nil {
			return fmt.Errorf("unable to find the project: %w", err)
		}

		for f.project = dir; ; f.project = filepath.Dir(f.project) {
			if _, err := os.Stat(filepath.Join(f.project, "Pulumi.yaml")); err == nil {
				break
			}

			if f.project == filepath.Dir(f.project) {
				return fmt.Errorf("no Pulumi.yaml in %s or above: run this in the project, or name its folder with --project", dir)
			}
		}
	}

	if f.dir == "" {
		f.dir = filepath.Join(f.project, ".lab")
	}

	var err error
	if f.project, err = filepath.Abs(f.project); err != nil {
		return fmt.Errorf("unable to find the project: %w", err)
	}

	if f.dir, err = filepath.Abs(f.dir); err != nil {
		return fmt.Errorf("unable to find the lab's folder: %w", err)
	}

	return nil
}
