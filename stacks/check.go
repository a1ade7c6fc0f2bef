package stacks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"

	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/recovery"
	"talos-proxmox/internal/site"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
)

// ErrSite is the error of [Check.Report] where something blocks a stack, or no one answers.
var ErrSite = errors.New("not everything is as the stack needs it, see above")

// Check asks what previews ask, without an engine.
type Check struct {
	Stack     string
	Plan      *spec.Plan
	Setting   proxmoxapi.Setting
	Factory   talos.Factory
	Resources []apitype.ResourceV3 // of the stack's state
	Transport http.RoundTripper    // reaches Proxmox and the Image Factory; nil = HTTP's default
	Rehearsal bool                 // see [Program]
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

// Report compares the stack with what Proxmox and the Image Factory say; the text is for a terminal.
func (c Check) Report(ctx context.Context) (string, error) {
	last := newLastRun()
	for _, r := range c.Resources {
		if err := last.add(string(r.URN), string(r.Type), recovery.Reveal(r.Outputs)); err != nil {
			return "", err
		}
	}

	asked := proxmoxapi.NewMachines(c.Setting, c.Transport)
	problems, warnings := last.judge(ctx, c.Plan, asked)
	stack := last.siteStack(namespace, c.Stack, c.Rehearsal)
	told := site.Ask(ctx, site.Questions{
		Plan: c.Plan, Stack: stack, Endpoint: c.Setting("endpoint"),
		Proxmox: asked, Factory: c.Factory, Transport: c.Transport,
	})

	var found site.Findings
	for _, problem := range problems {
		found = append(found, site.Finding{Kind: site.Problem, Problem: problem})
	}

	for _, warning := range warnings {
		found = append(found, site.Finding{Kind: site.Warning, Problem: spec.Problem{Message: warning}})
	}

	found = append(found, site.Judge(c.Plan, stack, told)...)

	text := fmt.Sprintf("Stack %s, Proxmox at %s\n%s", c.Stack, c.Setting("endpoint"), found.Report())
	if len(found.Problems()) > 0 || told.Silent != nil {
		return text, ErrSite
	}

	return text, nil
}
