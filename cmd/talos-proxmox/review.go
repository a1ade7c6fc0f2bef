package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/planguard"
	"talos-proxmox/internal/tokens"
	"talos-proxmox/stacks"
)

// review is a preview with the guard's findings.
type review struct {
	*planguard.Preview
	findings []planguard.Step // steps that need approval
	unused   []string         // approvals that match no step
	// displayed: the engine has printed its warnings already.
	displayed bool
}

// readReview reads a stored plan and runs the guard.
func readReview(path string, approved []string) (review, error) {
	file, err := os.Open(path) //nolint:gosec // in the project's folder
	if err != nil {
		return review{}, fmt.Errorf("unable to open the plan: %w; talos-proxmox preview %s writes it", err, planOf(path))
	}
	defer file.Close()

	p, err := planguard.Parse(file)
	if err != nil {
		return review{}, fmt.Errorf("unable to read %s: %w", path, err)
	}

	if p.Stack == "" {
		p.Stack = planOf(path)
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

// errFindings is the error of a plan that the guard rejects.
var errFindings = errors.New("plan rejected")

// verdict prints what the plan would lose. The error names the command that approves it.
func (r review) verdict(w io.Writer, cmd *cobra.Command) error {
	verb := "preview" // drift has no approvals
	if cmd.Name() == "deploy" {
		verb = cmd.Name()
	}

	for _, name := range r.unused {
		fmt.Fprintf(w, "note: the plan does nothing to %s that needs an approval\n", name)
	}

	for _, m := range r.Errors {
		fmt.Fprintln(w, "error:", strings.TrimSpace(m.Resource+" "+m.Text))
	}

	for _, p := range r.mandatory() {
		if !r.displayed {
			fmt.Fprintf(w, "error: %s violates the policy %s: %s\n", p.Resource, p.Name, p.Text)
		}
	}

	if !r.Finished {
		return fmt.Errorf(
			"the preview of stack %q did not finish, so it is incomplete: %w", r.Stack, errFindings,
		)
	}

	lines, others := r.effects()
	for _, line := range slices.Concat(lines, r.Commands()) {
		fmt.Fprintln(w, fit(cmd, "note: "+line))
	}

	for _, m := range others {
		if !r.displayed {
			fmt.Fprintln(w, "warning:", strings.TrimSpace(m.Resource+" "+m.Text))
		}
	}

	if text := r.Shutdown(); text != "" && r.displayed {
		fmt.Fprintln(w, fit(cmd, "note: "+text))
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

// mandatory returns the violations that fail the preview.
func (r review) mandatory() []planguard.Policy {
	return slices.DeleteFunc(slices.Clone(r.Policies), func(p planguard.Policy) bool { return p.Level != "mandatory" })
}

// effects returns what the plan does to machines and clusters, and the warnings of anything else. A warning of the
// program about the same machines replaces the line, because it names the keys of the stack file.
func (r review) effects() (lines []string, others []planguard.Message) {
	plan, err := stacks.PlanOfConfig(r.Stack, r.Config)
	if err != nil {
		plan = nil
	}

	lines, others = r.Describe(plan), slices.Clone(r.Warnings)

	for i, line := range lines {
		head, _, _ := strings.Cut(line, ": ")

		at := slices.IndexFunc(others, func(m planguard.Message) bool { return strings.HasPrefix(m.Text, head+": ") })
		if at < 0 {
			continue
		}

		if !(planguard.Message{Text: line}).IsAboutAPI() { // of which the program does not count restarts for configurations
			lines[i] = others[at].Text
		}

		others = slices.Delete(others, at, at+1)
	}

	remaining := others[:0]

	for _, m := range others {
		if m.IsUpgrade() || m.IsAboutAPI() {
			lines = append(lines, m.Text)
		} else {
			remaining = append(remaining, m)
		}
	}

	return lines, remaining
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
