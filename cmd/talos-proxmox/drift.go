package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/cli"
	"talos-proxmox/internal/operations"
	"talos-proxmox/internal/planguard"
	"talos-proxmox/internal/request"
)

func newDrift(a *app) *cobra.Command {
	var (
		nodes  bool
		output cli.Output
	)

	cmd := &cobra.Command{
		Use:   "drift STACK",
		Short: "Report differences between a stack and its machines, nodes and files of hosts",
		Long: `Previews the stack with a refresh, reads the versions (Talos, schematic, kubelet, API server) and the
machine configuration of every node, and compares them with the stack file and with what was applied last. The preview
and the differences of nodes are stored in .plan/STACK.json, for talos-proxmox preview --stored. Differences of machine
configurations are shown by path, never by value. With --nodes only nodes are compared, which needs neither Proxmox
nor the hosts' shells.

Exit status: 0 no difference, 1 differences, 2 the comparison failed.`,
		Example:           "  talos-proxmox drift prod\n  talos-proxmox drift prod --nodes --output json",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completion(nil),
		Annotations:       cli.OtherErrors(operations.StatusUnknown),
		RunE: func(cmd *cobra.Command, args []string) error {
			if nodes {
				return a.driftOfNodes(cmd, args[0], output)
			}

			if a.OnLab(args[0]) { // whose preview would start it
				if _, err := a.runningLab(cmd, args[0]); err != nil {
					return err
				}
			}

			failure, err := a.writePlan(cmd, args[0], planOptions{refresh: true}, io.Discard)
			if err != nil {
				return err
			}

			differences, err := a.differences(cmd, args[0])
			if err != nil {
				return err
			}

			if err := appendDocument(a.planPath(args[0]), map[string]any{"drift": differences}); err != nil {
				return err
			}

			r, err := readReview(a.planPath(args[0]), nil)
			if err != nil {
				return err
			}

			return driftError(r.Finished, failure, r.report(cmd, output, true))
		},
	}
	output.Flag(cmd)
	cmd.Flags().BoolVar(&nodes, "nodes", false, "compare only nodes")

	return cmd
}

// driftError returns drift's error with its exit status. Failure is that of a preview that did not finish, whose own
// status means nothing here.
func driftError(finished bool, failure, err error) error {
	switch {
	case err == nil:
		return nil
	case finished:
		return cli.WithStatus(operations.StatusAttention, err)
	default:
		return cli.WithStatus(operations.StatusUnknown, errors.Join(failure, err))
	}
}

// differences returns how a stack's nodes differ from what is planned and was applied.
func (a *app) differences(cmd *cobra.Command, stack string) ([]request.NodeDifference, error) {
	deployed, err := a.readDeployed(cmd, stack)
	if err != nil {
		return nil, err
	}

	return operations.Status{Deployed: deployed}.Drift(cmd.Context())
}

func (a *app) driftOfNodes(cmd *cobra.Command, stack string, output cli.Output) error {
	differences, err := a.differences(cmd, stack)
	if err != nil {
		return err
	}

	if output == cli.JSON {
		if err := cli.PrintJSON(cmd, map[string]any{"drift": differences}); err != nil {
			return err
		}
	} else {
		for _, d := range differences {
			printNode(cmd.OutOrStdout(), d)
		}

		if len(differences) == 0 {
			printLines(cmd, "No drift: every node runs what is planned, with the machine configuration that was applied last.")
		}
	}

	if len(differences) > 0 {
		return cli.WithStatus(operations.StatusAttention, fmt.Errorf(
			"nodes of stack %q have drifted: %d", stack, len(differences)))
	}

	return nil
}

// appendDocument appends a JSON document to a file.
func appendDocument(path string, document any) error {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("unable to write the plan: %w", err)
	}

	if err := errors.Join(json.NewEncoder(file).Encode(document), file.Close()); err != nil {
		return fmt.Errorf("unable to write the plan: %w", err)
	}

	return nil
}

// changes returns the steps that change a resource; without drift there are none.
func (r review) changes() []planguard.Step {
	var steps []planguard.Step

	for _, s := range r.Steps {
		switch s.Operation {
		case planguard.Same, planguard.Read, planguard.Refresh:
		case planguard.Create, planguard.Update, planguard.Delete, planguard.Replace, planguard.Import:
			steps = append(steps, s)
		}
	}

	return steps
}

// requireUnchanged prints drift, and returns an error if there is any.
func (r review) requireUnchanged(w io.Writer) error {
	count := 0

	for _, s := range r.changes() {
		_, _ = fmt.Fprintf(w, "%s %s: %s\n", s.Operation, s.Name(), strings.Join(s.Properties, ", "))

		count++
	}

	for _, line := range r.Hosts {
		_, _ = fmt.Fprintln(w, line)
	}

	for _, d := range r.Drift {
		count += printNode(w, d)
	}

	if count > 0 {
		return fmt.Errorf("stack %q has drifted; differences: %d", r.Stack, count)
	}

	_, _ = fmt.Fprintf(
		w, "No drift in %d resources: machines, nodes and files of hosts match the state and the stack file.\n", len(r.Steps),
	)

	return nil
}

// printNode prints a node's differences and returns the number of lines.
func printNode(w io.Writer, d request.NodeDifference) int {
	lines := d.Lines()
	for _, line := range lines {
		_, _ = fmt.Fprintf(w, "node %s: %s\n", d.Node, line)
	}

	return len(lines)
}
