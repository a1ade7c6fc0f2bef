package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/cli"
	"talos-proxmox/internal/recovery"
	"talos-proxmox/internal/spec"
	"talos-proxmox/stacks"
)

// parallel is the engine's number of parallel steps.
const parallel = "64"

// engine runs the Pulumi CLI on a stack with the project's policies.
type engine struct {
	cli.Stack

	policies []string  // flags
	notifier *notifier // gets what an up does; nil = nobody
}

// newEngine checks what the engine does not, and returns the stack's engine: whether machines meet the needs of the
// clusters' GitOps paths, and names in the policies' configuration, of which Pulumi ignores misspelt ones.
func (a *app) newEngine(cmd *cobra.Command, stack string) (engine, error) {
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

	if err := a.run(cmd, policyPack, append([]string{"check"}, a.policyConfig(stack)...)...); err != nil {
		return engine{}, err
	}

	policies := append([]string{"--policy-pack", pack}, a.policyConfig(stack, "--policy-pack-config")...)

	return engine{Stack: s, policies: policies}, nil
}

// run runs an operation of the Pulumi CLI.
func (e engine) run(cmd *cobra.Command, to io.Writer, args ...string) error {
	args = append(append(args, "--stack", e.Name, "--parallel", parallel), e.policies...)

	var stderrCopy bytes.Buffer

	stderr := io.MultiWriter(cmd.ErrOrStderr(), &stderrCopy)

	err := cli.Run(cmd.Context(), e.Folder, e.Environment, to, stderr, e.Pulumi, args...)
	if err == nil {
		return nil
	}

	if hint := recovery.Hint(stderrCopy.String()); hint != "" {
		return fmt.Errorf("%w; %s", err, hint)
	}

	return err
}

// hasGitOps reports whether a cluster of a stack has a GitOps path. A file that cannot be planned has none: the preview
// reports why.
func (a *app) hasGitOps(stack string) bool {
	plan, err := a.plan(stack, stacks.PlanUnconnected)

	return err == nil && slices.ContainsFunc(plan.Clusters, func(c spec.Cluster) bool { return c.GitOps != nil })
}

// policyConfig returns flags followed by the file with the policies' configuration of a stack; nothing without the
// file.
func (a *app) policyConfig(stack string, flags ...string) []string {
	name := filepath.Join("policy", "policy-config."+cli.ShortName(stack)+".json")
	if _, err := os.Stat(filepath.Join(a.Folder, name)); err != nil {
		return nil
	}

	return append(flags, name)
}
