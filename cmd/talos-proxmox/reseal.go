package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/operations"
)

func newReseal(a *app) *cobra.Command {
	var identities string

	cmd := &cobra.Command{
		Use:   "reseal STACK STATE CLUSTER=SECRETS…",
		Short: "Continue a stack whose passphrase is lost, with exported machine secrets",
		Long: `Continues a stack whose secrets can no longer be decrypted. STATE is a file of talos-proxmox backup state,
or <stack>.json of a backend that is a folder. The stack must already exist, empty, with the same name, a new
passphrase and its secrets set again. The machine secrets come from the export of each of the stack's clusters. The
state is passed to the Pulumi CLI on standard input and encrypted with the new passphrase.

Resources that held other secrets are left out: the next pulumi up creates them again, and they find their work done.
Machines are not changed. Run that up without a refresh, because a refresh would use the lost token.`,
		Example:           "  talos-proxmox secrets reseal prod prod-20261122T030000Z.json home=prod-home-secrets-20261101T101500Z.age --identities secrets.key",
		Args:              cobra.MinimumNArgs(3),
		ValidArgsFunction: a.completion(nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			keys, err := readIdentities(identities)
			if err != nil {
				return err
			}

			files, err := byCluster(args[2:])
			if err != nil {
				return err
			}

			exported, err := operations.ReadExports(files, keys)
			if err != nil {
				return err
			}

			state, err := os.Open(args[1])
			if err != nil {
				return fmt.Errorf("unable to read the state: %w", err)
			}

			defer func() { _ = state.Close() }()

			s, err := a.Stack(args[0])
			if err != nil {
				return err
			}

			recreated, err := operations.Reseal(cmd.Context(), pulumiOf(s), args[0], state, exported, time.Now())
			if err != nil {
				return err
			}

			printLines(cmd, fmt.Sprintf(
				"stack %s has its state again; the next up recreates %d resources; run it without --refresh: %s",
				args[0], len(recreated), strings.Join(recreated, ", "),
			))

			return nil
		},
	}
	addIdentitiesFlag(cmd, &identities)

	return cmd
}
