package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/cli"
)

// previewing holds the flags of the command preview.
type previewing struct {
	planOptions

	approved      approval
	output        cli.Output
	store, stored bool
	markdown      bool
	pull          int
}

func newPreview(a *app) *cobra.Command {
	var p previewing

	cmd := &cobra.Command{
		Use:   "preview STACK…",
		Short: "Show what up would do, with the policies, and fail if it would lose control planes, secrets or data",
		Long: `Runs pulumi preview with the project's policies, then the guard. For stacks with GitOps it first compares the
machines with the needs of the GitOps tree.

The guard fails if the plan would delete or replace Talos secrets, the bootstrap, a data disk or a template with linked
clones, delete a control plane that does not leave etcd first, replace the only one or more than one at once, or do
what up would refuse. Each such resource is named, and can be approved by its name. A preview that failed or was
interrupted is rejected as well, because the plan is then incomplete.

The engine's events are stored in .plan/STACK.json: without secrets, for another job of a pipeline. There --stored
judges the plans in .plan, of the named stacks or of all, without an engine. With --post they become a comment on a
pull request, replacing that of an earlier run: the changes, the guard's findings, what is planned on each host, and the
results of the policies. GITHUB_API_URL, GITHUB_REPOSITORY and GITHUB_TOKEN are required; GitHub Actions and Gitea
Actions set the first two. COMMENT_AUTHOR is the user of a token that is not a workflow's own. --output json prints a
document for each stack.`,
		Example: "  talos-proxmox preview prod\n  talos-proxmox preview prod --approve prod-cp-3-vm\n" +
			"  talos-proxmox preview dev prod --on-lab --store && talos-proxmox preview --stored --post 12",
		ValidArgsFunction: a.completion(nil),
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0 && !p.stored:
				return errors.New("name a stack; only --stored takes all that have a plan")
			case p.stored && cmd.Flag("on-lab").Changed:
				return errors.New("--stored judges plans that are there; omit --on-lab")
			}

			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.preview(cmd, args, p) },
	}
	p.planFlags(cmd)
	p.approved.flags(cmd)
	p.output.Flag(cmd)
	cmd.Flags().BoolVar(&p.markdown, "markdown", false, "print what --post posts")
	cmd.Flags().BoolVar(&p.store, "store", false, "store the plan without the guard: a preview that fails is stored as well")
	cmd.Flags().BoolVar(&p.stored, "stored", false, "judge stored plans")
	cmd.Flags().IntVar(&p.pull, "post", 0, "comment on the pull request with this number; 0 = do not")

	for _, judging := range []string{"stored", "post", "markdown", "output", "approve", "labels"} {
		cmd.MarkFlagsMutuallyExclusive("store", judging)
	}

	cmd.MarkFlagsMutuallyExclusive("markdown", "output")
	cmd.MarkFlagsMutuallyExclusive("stored", "refresh")

	return cmd
}

// preview plans stacks and judges their plans, one after the other; the error has those of all.
func (a *app) preview(cmd *cobra.Command, names []string, p previewing) error {
	var comments commenter

	if p.pull != 0 {
		var err error
		if comments, err = newCommenter(os.Getenv, p.pull); err != nil {
			return err
		}
	}

	if len(names) == 0 {
		var err error
		if names, err = a.storedPlans(); err != nil {
			return err
		}
	}

	var (
		failed   []error
		sections []string
	)

	for _, stack := range names {
		section, err := a.previewOne(cmd, stack, p)
		failed = append(failed, err)
		sections = append(sections, section)
	}

	text := composeComment(sections)
	if p.markdown {
		_, err := fmt.Fprint(cmd.OutOrStdout(), text)
		failed = append(failed, err)
	}

	if p.pull != 0 {
		failed = append(failed, comments.publish(cmd.Context(), text))
	}

	return errors.Join(failed...)
}

// previewOne plans a stack, unless its plan is stored, and judges the plan. It returns the plan's section of the
// comment.
func (a *app) previewOne(cmd *cobra.Command, stack string, p previewing) (section string, err error) {
	displays := !p.stored && !p.markdown && p.output == cli.Text // what the engine prints

	var failure error

	if !p.stored {
		display := io.Discard
		if displays {
			display = cmd.OutOrStdout()
		}

		if failure, err = a.writePlan(cmd, stack, p.planOptions, display); err != nil {
			return failedSection(stack, err), p.withoutPlan(cmd, stack, err)
		}

		if p.store {
			if failure != nil {
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s: a preview that failed: %s\n", a.planPath(stack), failure)
			}

			return "", nil
		}
	}

	r, err := readReview(a.planPath(stack), p.approved.list())
	if err != nil {
		return failedSection(stack, err), p.withoutPlan(cmd, stack, err)
	}

	switch r.displayed = displays; {
	case displays && failure != nil: // the engine has printed why
		err = failure
	case p.markdown:
		err = errors.Join(failure, r.verdict(io.Discard, cmd))
	default:
		err = errors.Join(failure, r.report(cmd, p.output, false))
	}

	return r.section(), err
}

// withoutPlan returns the error of a stack that has no plan; with --output json it prints that as well.
func (p previewing) withoutPlan(cmd *cobra.Command, stack string, err error) error {
	if p.output == cli.JSON && !p.store {
		return errors.Join(err, cli.PrintJSON(cmd, reviewResult{Stack: stack, Errors: []string{err.Error()}}))
	}

	return err
}

// storedPlans returns the stacks that have a stored plan.
func (a *app) storedPlans() ([]string, error) {
	files, _ := filepath.Glob(a.planPath("*")) // the pattern is well-formed
	if len(files) == 0 {
		return nil, fmt.Errorf("there is no plan in %s: talos-proxmox preview STACK writes one", filepath.Dir(a.planPath("*")))
	}

	names := make([]string, len(files))
	for i, file := range files {
		names[i] = planOf(file)
	}

	slices.Sort(names)

	return names, nil
}
