package stacks

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"proxmox-talos/components"
	"proxmox-talos/internal/proxmoxapi"
	"proxmox-talos/internal/running"
	"proxmox-talos/internal/site"
	"proxmox-talos/internal/spec"
	"proxmox-talos/internal/talos"
)

// askSite begins to ask Proxmox and the Image Factory what they have, in a preview only: an update follows one, or does
// without. The function that it returns waits for the answers.
func (d *deployment) askSite(ctx *pulumi.Context, transport http.RoundTripper) func() *site.Site {
	if !ctx.DryRun() {
		return func() *site.Site { return &site.Site{} }
	}
	told := sync.OnceValue(func() *site.Site {
		stack := d.siteStack(ctx)

		return askSite(ctx.Context(), d.plan, stack, d.factory, proxmoxSetting(ctx, os.Getenv), d.machines.asked, transport)
	})
	go told()

	return told
}

func askSite(
	ctx context.Context, plan *spec.Plan, stack site.Stack, factory talos.Factory, setting proxmoxapi.Setting, asked *proxmoxapi.Machines, transport http.RoundTripper,
) *site.Site {
	return site.Ask(ctx, site.Questions{Plan: plan, Stack: stack, Endpoint: setting("endpoint"), Proxmox: asked, Factory: factory, Transport: transport})
}

// judgeSite refuses a plan that Proxmox or the Image Factory does not have what it takes for.
func (d *deployment) judgeSite(ctx *pulumi.Context, told *site.Site) error {
	if !ctx.DryRun() {
		return nil
	}
	found := site.Judge(d.plan, d.siteStack(ctx), told)
	for _, warning := range found.Warnings() {
		if err := warn(ctx, warning); err != nil {
			return err
		}
	}
	if problems := found.Problems(); len(problems) > 0 {
		return fmt.Errorf("Proxmox or the Image Factory does not have what is planned, nothing was changed:\n%w", problems) //nolint:staticcheck // a name
	}

	return nil
}

func (d *deployment) siteStack(ctx *pulumi.Context) site.Stack {
	return d.last.siteStack(ctx.Project(), ctx.Stack(), d.rehearsal)
}

// siteStack is what the stack has made already.
func (l lastRun) siteStack(project, name string, rehearsal bool) site.Stack {
	s := site.Stack{
		Project: project, Name: name, Rehearsal: rehearsal, Machines: map[int]running.Machine{}, Mappings: l.mappings, Image: components.ImageOf,
		Downloaded: func(t spec.Template) bool { return l.made[components.ImageOf(t)+"-"+t.Host+"-"+t.ImageDatastore] },
		Built:      func(t spec.Template) bool { return l.made[t.Key+"-"+t.Host+"-build"] },
	}
	for _, m := range l.machines {
		s.Machines[m.VMID] = m
	}

	return s
}
