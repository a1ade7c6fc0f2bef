package main

import (
	"fmt"
	"slices"
	"strings"

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

// composeComment returns the whole comment.
func composeComment(sections []string) string {
	text := commentMarker + "\n" + strings.Join(sections, "\n")
	if len(text) > maxComment {
		text = strings.ToValidUTF8(text[:maxComment], "") + "\n\n… the rest is in the log of the job.\n"
	}

	return text
}

// failedSection says where people look why a stack has no plan.
func failedSection(stack string, err error) string {
	return fmt.Sprintf("## %s\n\n❌ %s\n", escape(stack), escape(err.Error()))
}

func (r review) section() string {
	var b strings.Builder
	fmt.Fprintf(&b, "## Plan of stack %s\n\n", code(r.Stack))

	if r.Finished {
		fmt.Fprintf(&b, "**%s**\n\n", r.summary())
	} else {
		b.WriteString("❌ **The preview failed; what follows may be incomplete.**\n\n")
	}

	effects, warnings := r.effects()

	r.writeMessages(&b, "Errors", r.Errors)
	r.writeFindings(&b)
	writeEffects(&b, slices.Concat(effects, r.Commands()))
	r.writeDrift(&b)
	r.writeSteps(&b)
	r.writePolicies(&b)
	r.writeCapacity(&b)
	r.writeMessages(&b, "Warnings", warnings)

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

func writeEffects(b *strings.Builder, lines []string) {
	if len(lines) == 0 {
		return
	}

	b.WriteString("### What changes\n\n")

	for _, line := range lines {
		b.WriteString("- " + escape(shorten(line)) + "\n")
	}

	b.WriteString("\n")
}

// writeDrift lists differences of nodes and of hosts' files.
func (r review) writeDrift(b *strings.Builder) {
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
