package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/planguard"
	"talos-proxmox/internal/report"
	"talos-proxmox/stacks"
)

// Limits keep the comment below GitHub's limit of 65,536 characters.
const (
	maxRows    = 100
	maxMessage = 500
	maxComment = 60_000
)

// commentMarker identifies the comment.
const commentMarker = "<!-- talos-proxmox: plan -->"

func newReview(a *app) *cobra.Command {
	var (
		approved approval
		post     bool
		pull     int
	)

	cmd := &cobra.Command{
		Use:   "review [STACK or FILE…]",
		Short: "Write plans, capacity and policy results as Markdown, or post them on a pull request",
		Long: `Writes one section for each plan that talos-proxmox plan, guard or drift stored in .plan, for those of the
stacks that are named, or for each FILE: the changes, the result of the guard, what is planned on each host, and the
results of the policies. With --post the text becomes a comment on a pull request, replacing that of an earlier run.
GITHUB_API_URL, GITHUB_REPOSITORY and GITHUB_TOKEN are required; GitHub Actions and Gitea Actions set the first two.
COMMENT_AUTHOR is the user of a token that is not a workflow's own.`,
		Example:           "  talos-proxmox review prod\n  talos-proxmox review .plan/prod.json --post --pull 12",
		ValidArgsFunction: a.completion(nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			files, err := a.planFiles(args)
			if err != nil {
				return err
			}

			text, err := composeComment(files, approved.list())
			if err != nil {
				return err
			}

			if !post {
				_, err := fmt.Fprint(cmd.OutOrStdout(), text)

				return err
			}

			commenter, err := newCommenter(os.Getenv, pull)
			if err != nil {
				return err
			}

			return commenter.publish(cmd.Context(), text)
		},
	}
	approved.flags(cmd)
	cmd.Flags().BoolVar(&post, "post", false, "post the comment instead of printing it")
	cmd.Flags().IntVar(&pull, "pull", 0, "with --post: the pull request's number")

	return cmd
}

// planFiles returns the stored plans of named stacks, and named files; without names, all stored plans.
func (a *app) planFiles(named []string) ([]string, error) {
	if len(named) == 0 {
		files, _ := filepath.Glob(a.planPath("*")) // the pattern is well-formed
		if len(files) == 0 {
			return nil, fmt.Errorf("there is no plan in %s: talos-proxmox plan creates one", filepath.Dir(a.planPath("*")))
		}

		return files, nil
	}

	files, known := slices.Clone(named), a.Stacks()

	for i, name := range named {
		if !slices.Contains(known, name) {
			if _, err := os.Stat(name); err != nil && name != "-" && filepath.Base(name) == name && filepath.Ext(name) == "" {
				return nil, fmt.Errorf("%q is neither a stack nor a file: stacks are %s", name, strings.Join(known, ", "))
			}

			continue
		}

		files[i] = a.planPath(name)
		if _, err := os.Stat(files[i]); err != nil {
			return nil, fmt.Errorf("there is no plan of stack %s: talos-proxmox plan %[1]s creates it", name)
		}
	}

	return files, nil
}

// composeComment returns the whole comment. It reports unreadable previews in the comment, where people look.
func composeComment(files, approved []string) (string, error) {
	sections := make([]string, 0, len(files))
	for _, file := range files {
		if file == "-" {
			return "", fmt.Errorf("review cannot read standard input: name one file for each stack")
		}

		r, err := readReview(file, nil, approved)
		if err != nil {
			sections = append(sections, fmt.Sprintf("## %s\n\n❌ %s\n", escape(file), escape(err.Error())))

			continue
		}

		sections = append(sections, r.section())
	}

	text := commentMarker + "\n" + strings.Join(sections, "\n")
	if len(text) > maxComment {
		text = strings.ToValidUTF8(text[:maxComment], "") + "\n\n… the rest is in the log of the job.\n"
	}

	return text, nil
}

func (r *review) section() string {
	var b strings.Builder
	fmt.Fprintf(&b, "## Plan of stack %s\n\n", code(r.Stack))

	if r.Finished {
		fmt.Fprintf(&b, "**%s**\n\n", r.summary())
	} else {
		b.WriteString("❌ **The preview failed; what follows may be incomplete.**\n\n")
	}

	r.writeMessages(&b, "Errors", r.Errors)
	r.writeFindings(&b)
	r.writeMachines(&b)
	r.writeDrift(&b)
	r.writeSteps(&b)
	r.writePolicies(&b)
	r.writeCapacity(&b)
	r.writeMessages(&b, "Warnings", r.Warnings)

	return b.String()
}

func (r review) writeMessages(b *strings.Builder, title string, messages []planguard.Message) {
	if len(messages) == 0 {
		return
	}

	fmt.Fprintf(b, "### %s\n\n", title)

	for _, m := range messages {
		text := escape(shorten(m.Text))
		if m.Resource != "" {
			text = code(m.Resource) + ": " + text
		}

		b.WriteString("- " + text + "\n")
	}

	b.WriteString("\n")
}

// writeMachines describes what happens to existing machines. A warning of the program about the same machine replaces
// the line, because it names the keys of the stack file.
func (r *review) writeMachines(b *strings.Builder) {
	lines := r.Describe()
	if len(lines) == 0 {
		return
	}

	b.WriteString("### Machines\n\n")

	for _, line := range lines {
		head, _, _ := strings.Cut(line, ": ")
		if i := slices.IndexFunc(r.Warnings, func(m planguard.Message) bool {
			return strings.HasPrefix(m.Text, head+": ")
		}); i >= 0 {
			line = r.Warnings[i].Text
			r.Warnings = slices.Delete(slices.Clone(r.Warnings), i, i+1)
		}

		b.WriteString("- " + escape(shorten(line)) + "\n")
	}

	b.WriteString("\n")
}

// writeDrift lists differences of nodes and of hosts' files.
func (r *review) writeDrift(b *strings.Builder) {
	if len(r.Drift)+len(r.Hosts) == 0 {
		return
	}

	b.WriteString("### Drift\n\n")

	for _, line := range r.Hosts {
		b.WriteString("- " + escape(shorten(line)) + "\n")
	}

	for _, d := range r.Drift {
		for _, line := range d.Lines() {
			fmt.Fprintf(b, "- %s: %s\n", code(d.Node), escape(shorten(line)))
		}
	}

	b.WriteString("\n")
}

func shorten(text string) string {
	if runes := []rune(text); len(runes) > maxMessage {
		return string(runes[:maxMessage]) + "…"
	}

	return text
}

func (r review) writeFindings(b *strings.Builder) {
	if len(r.findings) == 0 {
		if r.Finished {
			b.WriteString("✅ The guard accepts this plan.\n\n")
		}

		return
	}

	b.WriteString("⛔ **The guard rejects this plan** unless each of these is approved by its name:\n\n")

	for _, f := range r.findings {
		fmt.Fprintf(b, "- %s **%s**: %s\n", f.Operation, code(f.Name()), escape(strings.Join(f.Reasons, "; ")))
	}

	b.WriteString("\n")
}

func (r review) writeSteps(b *strings.Builder) {
	rows := [][]string{{"", "resource", "type", "changes"}}
	omitted := 0

	for _, o := range []planguard.Operation{
		planguard.Replace, planguard.Delete, planguard.Update, planguard.Import, planguard.Create,
	} {
		for _, s := range r.stepsWith(o) {
			if len(rows) > maxRows {
				omitted++

				continue
			}

			rows = append(
				rows, []string{string(o), s.Name(), shortType(string(s.URN.Type())), shorten(strings.Join(s.Properties, ", "))},
			)
		}
	}

	if len(rows) == 1 {
		return
	}

	fmt.Fprintf(b, "<details><summary>Steps</summary>\n\n%s\n", table(rows))

	if omitted > 0 {
		fmt.Fprintf(b, "… and %d more.\n", omitted)
	}

	b.WriteString("</details>\n\n")
}

// shortType returns a type token without its module: proxmoxve:VirtualMachine.
func shortType(full string) string {
	return full[:strings.Index(full, ":")+1] + full[strings.LastIndex(full, ":")+1:]
}

func (r review) writePolicies(b *strings.Builder) {
	if !r.Finished && len(r.Policies) == 0 {
		return
	}

	b.WriteString("### Policies\n\n")

	switch {
	case !r.Streamed:
		b.WriteString("Unknown: this form of the preview does not include them; set PULUMI_ENABLE_STREAMING_JSON_PREVIEW=true.\n\n")
	case len(r.Policies) > 0:
		rows := [][]string{{"level", "policy", "resource", "says"}}
		for _, p := range r.Policies {
			rows = append(rows, []string{p.Level, p.Name, p.Resource, shorten(p.Text)})
		}

		b.WriteString(table(rows) + "\n")
	case len(r.Packs) > 0:
		b.WriteString("No violations.\n\n")
	default:
		b.WriteString("No policy pack ran.\n\n")
	}
}

// writeCapacity plans the stack from the configuration in the preview.
func (r review) writeCapacity(b *strings.Builder) {
	plan, err := stacks.PlanOfConfig(r.Stack, r.Config)
	if err != nil {
		if r.Finished { // otherwise the preview's errors say why
			fmt.Fprintf(b, "### Capacity\n\nUnknown: %s\n\n", escape(shorten(err.Error())))
		}

		return
	}

	b.WriteString("### Capacity\n\n" + report.Capacity(plan) + "\n")
}
