package stacks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"

	"talos-proxmox/internal/preflight"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/recovery"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/tokens"
	"talos-proxmox/internal/vmdiff"
)

// ErrSite is the error of [Check.Report] if a problem blocks a stack, or Proxmox does not answer.
var ErrSite = errors.New("not everything is as the stack needs it, see above")

// Check makes the checks of previews, without an engine.
type Check struct {
	Stack     string
	Plan      *spec.Plan
	Setting   proxmoxapi.Setting
	Factory   talos.Factory
	Resources []apitype.ResourceV3 // of the stack's state
	Transport http.RoundTripper    // reaches Proxmox and the Image Factory; nil = HTTP's default
}

// ReadCheck reads a stack's configuration and its state with the Pulumi CLI. It takes no lock and changes nothing.
func ReadCheck(
	ctx context.Context, pulumi recovery.Pulumi, stack string, environment func(string) string,
) (Check, error) {
	config, err := recovery.ReadConfig(ctx, pulumi, stack)
	if err != nil {
		return Check{}, err
	}

	c := Check{
		Stack:   stack[strings.LastIndex(stack, "/")+1:],
		Setting: proxmoxapi.Settings(func(key string) string { return config["proxmoxve:"+key] }, environment),
		Factory: talos.Factory{URL: config["talos:imageFactoryUrl"]},
	}

	problems := slices.Concat(checkEndpoint(c.Setting), checkCredentials(c.Setting))
	if c.Plan, err = PlanOfConfig(c.Stack, config); err != nil {
		problems = append(problems, problemsOf(err)...)
	}

	if len(problems) > 0 {
		return c, fmt.Errorf("the configuration of stack %q has problems:\n%w", stack, problems)
	}

	_, deployment, err := recovery.ReadState(ctx, pulumi, stack)
	c.Resources = deployment.Resources

	return c, err
}

// Report compares the stack with Proxmox and the Image Factory; the text is for a terminal.
func (c Check) Report(ctx context.Context) (string, error) {
	last := newLastRun()
	for _, r := range c.Resources {
		if err := last.add(string(r.URN), string(r.Type), recovery.Reveal(r.Outputs)); err != nil {
			return "", err
		}
	}

	vmdiff.KeepRoles(c.Plan, func(role string) bool { return last.has(tokens.Role, role) })

	asked := proxmoxapi.NewMachines(c.Setting, c.Transport)
	problems, warnings := last.judge(ctx, c.Plan, asked)
	stack := last.siteStack(namespace, c.Stack)
	told := preflight.Ask(ctx, preflight.Questions{
		Plan: c.Plan, Stack: stack, Endpoint: c.Setting("endpoint"),
		Proxmox: asked, Factory: c.Factory, Transport: c.Transport,
	})

	found := append(problems, preflight.Judge(c.Plan, stack, told)...)
	for _, warning := range warnings {
		found.Warn("", nil, "%s", warning)
	}

	answer, blocked := sumUp(found), len(found.Errors()) > 0
	if told.Silent != nil {
		answer, blocked = "Nothing is known of what Proxmox has.", true
	}

	text := fmt.Sprintf("Stack %s, Proxmox at %s\n%s\n%s\n", c.Stack, c.Setting("endpoint"), preflight.Report(found), answer)
	if blocked {
		return text, ErrSite
	}

	return text, nil
}

// sumUp is the answer in one sentence.
func sumUp(found problem.List) string {
	count := func(n int, of string) string {
		if n == 1 {
			return "1 " + of
		}

		return fmt.Sprintf("%d %ss", n, of)
	}

	checks, problems, warnings := count(len(found), "check"), len(found.Errors()), len(found.Warnings())

	switch {
	case problems > 0:
		return fmt.Sprintf("%s: %s, %s. Previews refuse the stack.", checks, count(problems, "problem"), count(warnings, "warning"))
	case warnings > 0:
		return fmt.Sprintf("%s: no problem, %s.", checks, count(warnings, "warning"))
	default:
		return checks + ", all fine."
	}
}
