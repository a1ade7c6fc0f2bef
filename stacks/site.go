package stacks

import (
	"fmt"
	"net/http"
	"os"
	"sync"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/preflight"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/tokens"
	"talos-proxmox/internal/vmdiff"
)

// askSite begins to ask Proxmox and the Image Factory what they have, in a preview only: an update follows one, or does
// without. The function that it returns waits for the answers.
func (d *deployment) askSite(ctx *pulumi.Context, transport http.RoundTripper) func() *preflight.Site {
	if !ctx.DryRun() {
		return func() *preflight.Site { return &preflight.Site{} }
	}

	questions := preflight.Questions{
		Plan: d.plan, Stack: d.siteStack(ctx), Endpoint: proxmoxSetting(ctx, os.Getenv)("endpoint"),
		Proxmox: d.machines.asked, Factory: d.factory, Transport: transport,
	}

	told := sync.OnceValue(func() *preflight.Site { return preflight.Ask(ctx.Context(), questions) })
	go told()

	return told
}

// judgeSite refuses a plan that Proxmox or the Image Factory does not have what it takes for.
func (d *deployment) judgeSite(ctx *pulumi.Context, told *preflight.Site) error {
	if !ctx.DryRun() {
		return nil
	}

	found := preflight.Judge(d.plan, d.siteStack(ctx), told)
	for _, warning := range found.Warnings() {
		if err := warn(ctx, warning.String()); err != nil {
			return err
		}
	}

	if problems := found.Errors(); len(problems) > 0 {
		const text = "Proxmox or the Image Factory does not have what is planned, nothing was changed:\n%w"

		return fmt.Errorf(text, Located(problems, ctx.Stack(), stackFile(ctx))) //nolint:staticcheck // a name
	}

	return nil
}

func (d *deployment) siteStack(ctx *pulumi.Context) preflight.Stack {
	return d.last.siteStack(ctx.Project(), ctx.Stack())
}

// siteStack is what the stack has made already.
func (l *lastRun) siteStack(project, name string) preflight.Stack {
	s := preflight.Stack{
		Project: project, Name: name, ID: l.id, Blank: l.blank(),
		Machines: map[int]vmdiff.Machine{}, Mappings: l.mappings,
		Image:      ImageOf,
		Downloaded: func(t spec.Template) bool { return l.has(tokens.File, ImageOf(t)+"-"+t.Host+"-"+t.ImageDatastore) },
		Built:      func(t spec.Template) bool { return l.has(tokens.RemoteCommand, t.Key+"-"+t.Host+"-build") },
	}
	for _, m := range l.machines {
		s.Machines[m.VMID] = m
	}

	return s
}
