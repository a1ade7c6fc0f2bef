// Package stacks turns a stack's configuration into components and outputs.
package stacks

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talosopsexec"
	"talos-proxmox/internal/vmlookup"
)

// deployment is what one run of the program registers.
type deployment struct {
	settings
	hosts     map[string]*hostState              // those with prep or gpus, by name
	images    map[string]*components.TalosImage  // by name
	systems   map[string]*components.SystemImage // by name
	templates map[templateKey]*components.GoldenTemplate
	mappings  map[string]*components.PCIMapping // by GPU name
	clusters  map[string]*components.TalosCluster
	cloud     map[string]*components.CloudMachine // machines of no cluster by name
	machines  *machines
	last      lastRun
	zones     map[string]string // hosts that nodes are on, by name
	newID     func() string
}

// Program is the program.
type Program struct {
	// Transport is how it reaches Proxmox; nil is HTTP's default.
	Transport http.RoundTripper
	// TalosOps is the path of a built talosops; empty = that of the environment, or it is built from its sources.
	TalosOps string
	// NewID makes the id of a stack that has none yet; nil = at random. A preview's is not kept.
	NewID func() string
}

// randomID is 16 hexadecimal digits.
func randomID() string {
	id := make([]byte, 8)
	_, _ = rand.Read(id) // it does not fail

	return hex.EncodeToString(id)
}

// Deploy is the program: it reads and judges the whole configuration and the hosts that it prepares or takes GPUs of,
// then registers preparations, images, templates, clusters and machines, then exports the outputs. A preview asks
// Proxmox and the Image Factory as well. A problem in the configuration, of running machines, of Proxmox or of a host
// ends it before anything but the record of the run is registered.
func Deploy(ctx *pulumi.Context) error { return Program{}.Deploy(ctx) }

// Deploy is [Deploy].
func (p Program) Deploy(ctx *pulumi.Context) error {
	ctx = talosopsexec.With(ctx, talosopsexec.FromSources)
	if p.TalosOps != "" {
		ctx = talosopsexec.WithBuilt(ctx, p.TalosOps)
	}

	s, err := readSettings(ctx)
	if err != nil {
		return err
	}

	d := &deployment{
		settings:  s,
		newID:     p.NewID,
		images:    map[string]*components.TalosImage{},
		systems:   map[string]*components.SystemImage{},
		templates: map[templateKey]*components.GoldenTemplate{},
		mappings:  map[string]*components.PCIMapping{},
		clusters:  map[string]*components.TalosCluster{},
		zones:     map[string]string{},
		cloud:     map[string]*components.CloudMachine{},
		machines: &machines{
			asked:   proxmoxapi.NewMachines(proxmoxSetting(ctx, os.Getenv), p.Transport),
			warn:    ctx.Log.Warn,
			preview: ctx.DryRun(),
		},
	}

	if d.newID == nil {
		d.newID = randomID
	}

	images, err := planImages(s.plan)
	if err != nil {
		return err
	}

	unread := d.readLast(ctx)
	ctx = vmlookup.With(ctx, vmlookup.Run{StackID: d.last.id})

	if err := d.judgeProxmoxCluster(ctx); err != nil {
		return errors.Join(err, d.last.refused(ctx))
	}

	checked, err := d.checkClusters()
	if err != nil {
		return errors.Join(err, d.last.refused(ctx))
	}

	if err := d.judgeRunning(ctx, unread); err != nil {
		return err
	}

	for _, warning := range s.plan.Warnings {
		if err := warn(ctx, warning); err != nil {
			return err
		}
	}

	if err := d.warnOperators(ctx); err != nil {
		return err
	}

	told := d.askSite(ctx, p.Transport)

	err = d.readHosts(ctx, told)
	if err := errors.Join(d.judgeSite(ctx, told()), err); err != nil {
		return err
	}

	for _, step := range []func() error{
		func() error { return d.adviseOnFailure(ctx) },
		func() error { return d.makeHosts(ctx) },
		func() error { return d.makeImages(ctx, images) },
		func() error { return d.makeTemplates(ctx) },
		func() error { return d.makeMappings(ctx) },
		func() error { return d.makeClusters(d.looking(ctx), checked) },
		func() error { return d.makeMachines(d.looking(ctx)) },
		func() error { return d.export(ctx) },
	} {
		if err := step(); err != nil {
			return err
		}
	}

	return nil
}

// checkClusters returns the clusters' arguments by name, or all their problems.
func (d *deployment) checkClusters() (map[string]components.TalosClusterArgs, error) {
	checked := map[string]components.TalosClusterArgs{}

	var problems []error

	for _, cluster := range d.plan.Clusters {
		args, err := d.clusterArgs(cluster).Checked(cluster.Name)
		checked[cluster.Name] = args

		problems = append(problems, err)
	}

	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("the configuration of the clusters has problems, nothing was changed:\n%w", err)
	}

	return checked, nil
}

func (d *deployment) makeImages(ctx *pulumi.Context, images []image) error {
	for _, planned := range images {
		if planned.template.System != nil {
			made, err := components.NewSystemImage(ctx, planned.name, d.systemImageArgs(planned, ctx.Project()+"/"+ctx.Stack()))
			if err != nil {
				return err
			}

			d.systems[planned.name] = made

			continue
		}

		made, err := components.NewTalosImage(ctx, planned.name, d.imageArgs(planned))
		if err != nil {
			return err
		}

		d.images[planned.name] = made
	}

	return nil
}

func (d *deployment) makeTemplates(ctx *pulumi.Context) error {
	for _, t := range d.plan.Templates {
		host, err := d.host(t.Host)
		if err != nil {
			return err
		}

		template, err := components.NewGoldenTemplate(ctx, t.Key+"-"+t.Host, d.templateArgs(t, host))
		if err != nil {
			return err
		}

		d.templates[keyOf(t)] = template
	}

	return nil
}

// looking is the context in which machines are made: what runs is known in it.
func (d *deployment) looking(ctx *pulumi.Context) *pulumi.Context {
	d.machines.wanted = wanted(d.plan)

	return vmlookup.With(ctx, vmlookup.Run{
		StackID: d.last.id, Look: d.machines.lookUp, Ran: d.last.ran, Begun: d.last.hasBegun,
		Calls: func(name string) vmlookup.Call { return d.last.calls[name] },
	})
}

func (d *deployment) makeClusters(ctx *pulumi.Context, checked map[string]components.TalosClusterArgs) error {
	for _, planned := range d.plan.Clusters {
		args := checked[planned.Name]
		d.wire(&args, planned)

		cluster, err := components.NewTalosCluster(ctx, planned.Name, args)
		if err != nil {
			return err
		}

		d.clusters[planned.Name] = cluster
	}

	return nil
}

func (d *deployment) host(name string) (spec.Host, error) {
	i := slices.IndexFunc(d.plan.Hosts, func(h spec.Host) bool { return h.Name == name })
	if i < 0 {
		names := make([]string, 0, len(d.plan.Hosts))
		for _, h := range d.plan.Hosts {
			names = append(names, h.Name)
		}

		return spec.Host{}, fmt.Errorf(
			"a template is planned on host %q, which is not one of the hosts %s: report this as a mistake in the plan", name,
			strings.Join(names, ", "),
		)
	}

	return d.plan.Hosts[i], nil
}
