package stacks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/internal/preflight"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/recovery"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/tokens"
	"talos-proxmox/internal/vmdiff"
)

// ErrCheck is the error of [Check] if a problem blocks a stack, or Proxmox does not answer.
var ErrCheck = errors.New("not everything is as the stack needs it, see above")

// Check makes the checks of previews without an engine: it reads a stack's configuration and state with the Pulumi CLI,
// and compares the stack with Proxmox and the Image Factory. The text is for a terminal. It takes no lock and changes
// nothing.
func Check(
	ctx context.Context, pulumi recovery.Pulumi, stack string, environment func(string) string,
) (string, error) {
	config, err := recovery.ReadConfig(ctx, pulumi, stack)
	if err != nil {
		return "", err
	}

	name := stack[strings.LastIndex(stack, "/")+1:]
	setting := proxmoxapi.Settings(func(key string) string { return config["proxmoxve:"+key] }, environment)
	problems := slices.Concat(checkEndpoint(setting), checkCredentials(setting))

	plan, err := PlanOfConfig(name, config)
	if err != nil {
		problems = append(problems, problemsOf(err)...)
	}

	if len(problems) > 0 {
		return "", fmt.Errorf("the configuration of stack %q has problems:\n%w", stack, problems)
	}

	_, deployment, err := recovery.ReadState(ctx, pulumi, stack)
	if err != nil {
		return "", err
	}

	last := newLastRun()
	for _, r := range deployment.Resources {
		if err := last.add(string(r.URN), string(r.Type), recovery.Reveal(r.Outputs)); err != nil {
			return "", err
		}
	}

	vmdiff.KeepRoles(plan, func(role string) bool { return last.has(tokens.Role, role) })

	proxmox := proxmoxapi.NewMachines(setting, nil)
	found, warnings := last.checkPlan(ctx, plan, proxmox)
	siteStack := last.preflightStack(Project, name)
	answers := preflight.Read(ctx, preflight.Sources{
		Plan: plan, Stack: siteStack, Endpoint: setting("endpoint"), Proxmox: proxmox,
		Factory: talos.Factory{URL: config["talos:imageFactoryUrl"]},
	})

	found = append(found, preflight.Check(plan, siteStack, answers)...)
	for _, warning := range warnings {
		found.Warn("", nil, "%s", warning)
	}

	answer, blocked := summary(found), len(found.Errors()) > 0
	if answers.Unreachable != nil {
		answer, blocked = "Nothing is known of what Proxmox has.", true
	}

	text := fmt.Sprintf("Stack %s, Proxmox at %s\n%s\n%s\n", name, setting("endpoint"), preflight.Report(found), answer)
	if blocked {
		return text, ErrCheck
	}

	return text, nil
}

// summary returns the result in one sentence.
func summary(found problem.List) string {
	checks, problems, warnings := problem.Count(len(found), "check"), len(found.Errors()), len(found.Warnings())

	switch {
	case problems > 0:
		return fmt.Sprintf("%s: %s, %s. Previews refuse the stack.", checks, problem.Count(problems, "problem"), problem.Count(warnings, "warning"))
	case warnings > 0:
		return fmt.Sprintf("%s: no problem, %s.", checks, problem.Count(warnings, "warning"))
	default:
		return checks + ", all fine."
	}
}
