package main

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/cli"
	"talos-proxmox/internal/planguard"
	"talos-proxmox/internal/request"
)

// report prints the guard's verdict and, if requested, drift.
func (r review) report(cmd *cobra.Command, output cli.Output, unchanged bool) error {
	w := cmd.OutOrStdout()
	if output == cli.JSON {
		w = io.Discard
	}

	err := r.verdict(w, cmd)
	if err == nil && unchanged {
		err = r.requireUnchanged(w)
	}

	if output == cli.JSON {
		if err := cli.PrintJSON(cmd, r.reviewResult()); err != nil {
			return err
		}
	}

	return err
}

// reviewResult is a review as JSON.
type reviewResult struct {
	Stack    string                   `json:"stack"`
	Finished bool                     `json:"finished"` // the preview is complete
	Errors   []string                 `json:"errors,omitempty"`
	Findings []jsonStep               `json:"findings,omitempty"` // steps that need approval
	Unused   []string                 `json:"unusedApprovals,omitempty"`
	Machines []string                 `json:"machines,omitempty"` // what happens to machines and clusters
	Commands []string                 `json:"commands,omitempty"` // what changed commands of the plan do
	Warnings []string                 `json:"warnings,omitempty"` // other ones
	Changes  []jsonStep               `json:"changes,omitempty"`
	Hosts    []string                 `json:"hosts,omitempty"` // files of hosts that differ
	Nodes    []request.NodeDifference `json:"nodes,omitempty"`
}

// jsonStep is a step with the reasons for a finding, or the properties that change.
type jsonStep struct {
	Operation  planguard.Operation `json:"operation"`
	Resource   string              `json:"resource"`
	Why        []string            `json:"why,omitempty"`
	Properties []string            `json:"properties,omitempty"`
}

func (r review) reviewResult() reviewResult {
	j := reviewResult{
		Stack: r.Stack, Finished: r.Finished, Unused: r.unused, Hosts: r.Hosts, Nodes: r.Drift, Commands: r.Commands(),
	}

	machines, others := r.effects()
	j.Machines = machines

	for _, m := range others {
		j.Warnings = append(j.Warnings, strings.TrimSpace(m.Resource+" "+m.Text))
	}

	for _, m := range r.Errors {
		j.Errors = append(j.Errors, strings.TrimSpace(m.Resource+" "+m.Text))
	}

	for _, p := range r.mandatory() {
		j.Errors = append(j.Errors, p.Resource+" violates the policy "+p.Name+": "+p.Text)
	}

	for _, f := range r.findings {
		j.Findings = append(j.Findings, jsonStep{Operation: f.Operation, Resource: f.Name(), Why: f.Reasons})
	}

	for _, s := range r.changes() {
		j.Changes = append(j.Changes, jsonStep{Operation: s.Operation, Resource: s.Name(), Properties: s.Properties})
	}

	return j
}
