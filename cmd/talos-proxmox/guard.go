package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/cli"
	"talos-proxmox/internal/planguard"
	"talos-proxmox/internal/tokens"
)

// review is a preview with the guard's findings.
type review struct {
	*planguard.Preview
	findings []planguard.Step // steps that need approval
	unused   []string         // approvals that match no step
}

// readReview reads a preview from a file and runs the guard; - is standard input.
func readReview(path string, stdin io.Reader, approved []string) (review, error) {
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return review{}, fmt.Errorf("unable to open the preview: %w", err)
		}
		defer file.Close()

		stdin = file
	}

	p, err := planguard.Parse(stdin)
	if err != nil {
		return review{}, fmt.Errorf("unable to read %s: %w", path, err)
	}

	if p.Stack == "" && path != "-" {
		p.Stack = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	}

	r := review{Preview: p}
	r.findings, r.unused = planguard.Check(p, approved)

	return r, nil
}

// approval holds the flags that approve losses.
type approval struct{ names, labels string }

func (a *approval) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(
		&a.names, "approve", "", "names of resources whose loss is approved, separated by commas: prod-cp-2-vm,prod-cp-3-vm",
	)
	cmd.Flags().StringVar(
		&a.labels, "labels", "", "labels of a pull request, separated by commas; approve:<name> approves that resource",
	)
}

func (a *approval) list() []string {
	names := strings.FieldsFunc(a.names, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' })
	for label := range strings.SplitSeq(a.labels, ",") {
		if name, ok := strings.CutPrefix(strings.TrimSpace(label), "approve:"); ok {
			names = append(names, strings.TrimSpace(name))
		}
	}

	slices.Sort(names)

	return slices.Compact(names)
}

// errFindings is the guard's error for a plan that it rejects.
var errFindings = errors.New("plan rejected")

func newGuard(a *app) *cobra.Command {
	var (
		approved approval
		output   cli.Output
		options  planOptions
		plan     string
	)

	cmd := &cobra.Command{
		Use:   "guard STACK",
		Short: "Fail if up would lose control planes, secrets or data",
		Long: `Plans the stack as talos-proxmox plan does, and fails if the plan would delete or replace Talos secrets,
the bootstrap, a data disk or a template with linked clones, delete a control plane that does not leave etcd first,
replace the only one or more than one at once, or do what up would refuse. Each such resource is named, and can be
approved by its name. The guard also fails if the preview failed or was interrupted, because the plan is then
incomplete.

With --plan it checks the output of pulumi preview --json, preferably with
PULUMI_ENABLE_STREAMING_JSON_PREVIEW=true, which includes policy results.`,
		Example: "  talos-proxmox guard prod\n  talos-proxmox guard prod --approve prod-cp-3-vm\n" +
			"  talos-proxmox guard prod --plan .plan/prod.json --output json",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completion(nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			if plan == "" {
				if err := a.writePlan(cmd, args[0], options); err != nil {
					return err
				}

				plan = a.planPath(args[0])
			}

			r, err := readReview(plan, cmd.InOrStdin(), approved.list())
			if err != nil {
				return err
			}

			if r.Stack == "" {
				r.Stack = args[0]
			}

			return r.report(cmd, output, false)
		},
	}
	approved.flags(cmd)
	output.Flag(cmd)
	options.flags(cmd)
	cmd.Flags().StringVar(&plan, "plan", "", "check this plan instead of planning; - is standard input")

	return cmd
}

// guard prints what the plan would lose. The error names the command, verb, that approves it.
func (r review) guard(w io.Writer, verb string) error {
	for _, name := range r.unused {
		fmt.Fprintf(w, "note: the plan does nothing to %s that needs an approval\n", name)
	}

	for _, m := range r.Errors {
		fmt.Fprintln(w, "error:", strings.TrimSpace(m.Resource+" "+m.Text))
	}

	if !r.Finished {
		return fmt.Errorf(
			"the preview of stack %q did not finish, so it is incomplete: %w", r.Stack, errFindings,
		)
	}

	for _, line := range r.Describe() {
		fmt.Fprintln(w, "note:", line)
	}

	if len(r.findings) == 0 {
		fmt.Fprintf(w, "The plan of stack %s (%s) loses nothing that cannot be restored.\n", r.Stack, r.summary())

		return nil
	}

	var names []string

	for _, f := range r.findings {
		fmt.Fprintln(w, f)
		names = append(names, f.Name())
	}

	return fmt.Errorf(
		"%w; if this is intended, approve each resource by its name: talos-proxmox %s %s --approve %s", errFindings, verb, r.Stack,
		strings.Join(names, ","),
	)
}

// summary counts the steps by operation: 2 to create, 1 to update.
func (r review) summary() string {
	var parts []string

	for _, o := range []planguard.Operation{
		planguard.Create, planguard.Import, planguard.Update, planguard.Replace, planguard.Delete,
	} {
		if n := len(r.stepsWith(o)); n > 0 {
			parts = append(parts, fmt.Sprintf("%d to %s", n, o))
		}
	}

	if len(parts) == 0 {
		return "no changes"
	}

	return strings.Join(parts, ", ")
}

func (r review) stepsWith(o planguard.Operation) []planguard.Step {
	var steps []planguard.Step

	for _, s := range r.Steps {
		if s.Operation == o && s.URN.Type() != tokens.Stack {
			steps = append(steps, s)
		}
	}

	slices.SortFunc(steps, func(a, b planguard.Step) int { return strings.Compare(a.Name(), b.Name()) })

	return steps
}
