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

// startPreflight starts the queries of Proxmox and the Image Factory, in previews only: an update normally follows one.
// The returned function waits for the answers.
func (d *deployment) startPreflight(ctx *pulumi.Context, transport http.RoundTripper) func() *preflight.Site {
	if !ctx.DryRun() {
		return func() *preflight.Site { return &preflight.Site{} }
	}

	questions := preflight.Sources{
		Plan: d.plan, Stack: d.preflightStack(ctx), Endpoint: proxmoxSetting(ctx, os.Getenv)("endpoint"),
		Proxmox: d.lookup.proxmox, Factory: d.factory, Transport: transport,
	}

	site := sync.OnceValue(func() *preflight.Site { return preflight.Read(ctx.Context(), questions) })
	go site()

	return site
}

// checkPreflight refuses a plan that needs what Proxmox or the Image Factory does not have.
func (d *deployment) checkPreflight(ctx *pulumi.Context, site *preflight.Site) error {
	if !ctx.DryRun() {
		return nil
	}

	found := preflight.Check(d.plan, d.preflightStack(ctx), site)
	for _, warning := range found.Warnings().Lines() {
		if err := warn(ctx, warning); err != nil {
			return err
		}
	}

	if problems := found.Errors(); len(problems) > 0 {
		const text = "Proxmox or the Image Factory does not have what is planned, nothing was changed:\n%w"

		return fmt.Errorf(text, Located(problems, ctx.Stack(), stackFile(ctx))) //nolint:staticcheck // a name
	}

	return nil
}

func (d *deployment) preflightStack(ctx *pulumi.Context) preflight.Stack {
	return d.lastRun.preflightStack(ctx.Project(), ctx.Stack())
}

// preflightStack returns what the stack has created already.
func (l *lastRun) preflightStack(project, name string) preflight.Stack {
	s := preflight.Stack{
		Project: project, Name: name, ID: l.stackID, Empty: l.isBlank(),
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
