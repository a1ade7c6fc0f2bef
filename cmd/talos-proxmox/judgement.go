package main

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/cli"
	"talos-proxmox/internal/planguard"
	"talos-proxmox/internal/request"
)

// judge prints what the guard says and, of a stack that is to be as planned, what differs.
func (r review) judge(cmd *cobra.Command, output cli.Output, unchanged bool) error {
	w := cmd.OutOrStdout()
	if output == cli.JSON {
		w = io.Discard
	}

	verb := "guard" // drift lets nothing pass by its name
	if cmd.Name() == "deploy" {
		verb = cmd.Name()
	}

	err := r.guard(w, verb)
	if err == nil && unchanged {
		err = r.requireUnchanged(w)
	}

	if output == cli.JSON {
		if err := cli.PrintJSON(cmd, r.judgement()); err != nil {
			return err
		}
	}

	return err
}

// judgement is a review as JSON.
type judgement struct {
	Stack    string                   `json:"stack"`
	Finished bool                     `json:"finished"` // the preview came to its end
	Errors   []string                 `json:"errors,omitempty"`
	Findings []jsonStep               `json:"findings,omitempty"` // what is to be approved by its name
	Unused   []string                 `json:"unusedApprovals,omitempty"`
	Machines []string                 `json:"machines,omitempty"` // what happens to machines that are there
	Changes  []jsonStep               `json:"changes,omitempty"`
	Hosts    []string                 `json:"hosts,omitempty"` // files that are not as wanted
	Nodes    []request.NodeDifference `json:"nodes,omitempty"`
}

// jsonStep is what happens to a resource: why that is a finding, or which properties change.
type jsonStep struct {
	Operation  planguard.Operation `json:"operation"`
	Resource   string              `json:"resource"`
	Why        []string            `json:"why,omitempty"`
	Properties []string            `json:"properties,omitempty"`
}

func (r review) judgement() judgement {
	j := judgement{
		Stack: r.Stack, Finished: r.Finished, Unused: r.unused, Machines: r.Describe(), Hosts: r.Hosts, Nodes: r.Drift,
	}

	for _, m := range r.Errors {
		j.Errors = append(j.Errors, strings.TrimSpace(m.Resource+" "+m.Text))
	}

	for _, f := range r.findings {
		j.Findings = append(j.Findings, jsonStep{Operation: f.Operation, Resource: f.Name(), Why: f.Why})
	}

	for _, s := range r.changes() {
		j.Changes = append(j.Changes, jsonStep{Operation: s.Operation, Resource: s.Name(), Properties: s.Properties})
	}

	return j
}
