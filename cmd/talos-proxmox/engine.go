package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/cli"
	"talos-proxmox/internal/recovery"
	"talos-proxmox/stacks"
)

// parallel is how many steps the engine does at once.
const parallel = "64"

// engine runs the Pulumi CLI on a stack, judged by the project's policies.
type engine struct {
	cli.Stack

	policies []string // flags
}

// prepare judges what the engine does not: what machines lack of what the clusters' GitOps paths need, and names in the
// policies' configuration, which Pulumi passes over where they are misspelt.
func (a *app) prepare(cmd *cobra.Command, stack string) (engine, error) {
	s, err := a.Stack(stack)
	if err != nil {
		return engine{}, err
	}

	pack, err := policyPack.Find(a.Folder)
	if err != nil {
		return engine{}, err
	}

	if a.hasGitOps(stack) {
		if err := a.checkGitOps(cmd, stack, a.Folder, false); err != nil {
			return engine{}, err
		}
	}

	if err := a.run(cmd, policyPack, append([]string{"check"}, a.policyConfigs(stack)...)...); err != nil {
		return engine{}, err
	}

	policies := append([]string{"--policy-pack", pack}, a.policyConfig("--policy-pack-config", stack)...)

	return engine{Stack: s, policies: policies}, nil
}

// run runs one of the engine's operations.
func (e engine) run(cmd *cobra.Command, to io.Writer, args ...string) error {
	args = append(append(args, "--stack", e.Name, "--parallel", parallel), e.policies...)

	var said bytes.Buffer

	stderr := io.MultiWriter(cmd.ErrOrStderr(), &said)

	err := cli.Run(cmd.Context(), e.Folder, e.Environment, to, stderr, e.Pulumi, args...)
	if err == nil {
		return nil
	}

	if hint := recovery.Hint(said.String()); hint != "" {
		return fmt.Errorf("%w; %s", err, hint)
	}

	return err
}

// hasGitOps says whether a cluster of a stack has a GitOps path. Of a file that cannot be planned the preview says why.
func (a *app) hasGitOps(stack string) bool {
	plan, err := a.plan(stack, stacks.PlanUnconnected)
	if err != nil {
		return false
	}

	for _, c := range plan.Clusters {
		if c.GitOps != nil {
			return true
		}
	}

	return false
}

// policyConfigs are the files of the policies' configuration of a stack: one or none.
func (a *app) policyConfigs(stack string) []string {
	name := filepath.Join("policy", "policy-config."+cli.ShortName(stack)+".json")
	if _, err := os.Stat(filepath.Join(a.Folder, name)); err != nil {
		return nil
	}

	return []string{name}
}

// policyConfig is a flag with that file.
func (a *app) policyConfig(flag, stack string) []string {
	var flags []string
	for _, name := range a.policyConfigs(stack) {
		flags = append(flags, flag, name)
	}

	return flags
}
