// Package stacks turns a stack's configuration into components and outputs.
package stacks

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talosopsexec"
	"talos-proxmox/internal/vmlookup"
)

// deployment is what one run of the program registers.
type deployment struct {
	settings
	hosts         map[string]*hostState              // those with prep or gpus, by name
	images        map[string]*components.TalosImage  // by name
	systems       map[string]*components.SystemImage // by name
	templates     map[templateKey]*components.GoldenTemplate
	mappings      map[string]*components.PCIMapping // by the name of devices
	clusters      map[string]*components.TalosCluster
	cloudMachines map[string]*components.CloudMachine // by name
	lookup        *machineLookup
	lastRun       lastRun
	zones         map[string]string // current hosts of nodes, by node name
	newID         func() string
}

// Program configures the program.
type Program struct {
	// Transport connects to Proxmox; nil = HTTP's default.
	Transport http.RoundTripper
	// TalosOps is the path of a built talosops; empty = that of the environment, or it is built from its sources.
	TalosOps string
	// NewID returns an id for a stack that has none; nil = a random one. A preview does not store it.
	NewID func() string
}

// randomID returns 16 hexadecimal digits.
func randomID() string {
	id := make([]byte, 8)
	_, _ = rand.Read(id) // never fails

	return hex.EncodeToString(id)
}

// Deploy is the program: it checks the whole configuration and the hosts that it prepares or whose GPUs it uses, then
// registers preparations, images, templates, clusters and machines, then exports the outputs. A preview also queries
// Proxmox and the Image Factory. Problems of the configuration, running machines, Proxmox or hosts stop it before
// anything but the record of the run is registered.
func Deploy(ctx *pulumi.Context) error { return Program{}.Deploy(ctx) }

// Deploy is [Deploy].
func (p Program) Deploy(ctx *pulumi.Context) error {
	ctx = talosopsexec.WithCommand(ctx, talosopsexec.FromSources)
	if p.TalosOps != "" {
		ctx = talosopsexec.WithProgram(ctx, p.TalosOps)
	}

	s, err := readSettings(ctx)
	if err != nil {
		return err
	}

	d := &deployment{
		settings:      s,
		newID:         p.NewID,
		images:        map[string]*components.TalosImage{},
		systems:       map[string]*components.SystemImage{},
		templates:     map[templateKey]*components.GoldenTemplate{},
		mappings:      map[string]*components.PCIMapping{},
		clusters:      map[string]*components.TalosCluster{},
		zones:         map[string]string{},
		cloudMachines: map[string]*components.CloudMachine{},
		lookup: &machineLookup{
			proxmox: proxmoxapi.NewMachines(proxmoxSetting(ctx, os.Getenv), p.Transport),
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

	stateErr := d.readLastRun(ctx)
	ctx = vmlookup.NewContext(ctx, vmlookup.Run{StackID: d.lastRun.stackID})

	if err := d.checkProxmoxCluster(ctx); err != nil {
		return errors.Join(err, d.lastRun.recordRefusal(ctx))
	}

	if err := d.verifyMachines(ctx); err != nil {
		return errors.Join(err, d.lastRun.recordRefusal(ctx))
	}

	checked, err := d.checkClusters(ctx)
	if err != nil {
		return errors.Join(err, d.lastRun.recordRefusal(ctx))
	}

	if err := d.checkRunningMachines(ctx, stateErr); err != nil {
		return err
	}

	for _, warning := range s.plan.Warnings {
		if err := warn(ctx, warning); err != nil {
			return err
		}
	}

	if err := d.warnUnsupportedGPUOperator(ctx); err != nil {
		return err
	}

	site := d.startPreflight(ctx, p.Transport)

	err = d.checkHosts(ctx, site)
	if err := errors.Join(d.checkPreflight(ctx, site()), err); err != nil {
		return err
	}

	withLookups := d.lookupContext(ctx)

	for _, step := range []func() error{
		func() error { return d.registerErrorAdvice(ctx) },
		func() error { return d.registerHosts(ctx) },
		func() error { return d.registerImages(ctx, images) },
		func() error { return d.registerTemplates(ctx) },
		func() error { return d.registerMappings(ctx) },
		func() error { return d.registerClusters(withLookups, checked) },
		func() error { return d.registerMachines(withLookups) },
		func() error { return d.registerMachineGuard(ctx) },
		func() error { return d.export(ctx) },
	} {
		if err := step(); err != nil {
			return err
		}
	}

	return nil
}

// checkClusters returns the clusters' arguments by name, or all their problems.
func (d *deployment) checkClusters(ctx *pulumi.Context) (map[string]components.TalosClusterArgs, error) {
	checked := map[string]components.TalosClusterArgs{}

	var problems problem.List

	for i, cluster := range d.plan.Clusters {
		args, err := d.clusterArgs(cluster).Validated(cluster.Name)
		checked[cluster.Name] = args

		if err == nil {
			continue
		}

		ofArgs := problemsOf(err)
		if len(ofArgs) == 0 {
			return nil, err
		}

		for _, p := range ofArgs {
			p.Path = stackFilePath(fmt.Sprintf("clusters[%d]", i), cluster, p.Path)
			problems = append(problems, p)
		}
	}

	if len(problems) > 0 {
		return nil, fmt.Errorf("the configuration of stack %q has problems, nothing was changed:\n%w", ctx.Stack(),
			Located(problems, ctx.Stack(), stackFile(ctx)))
	}

	return checked, nil
}

func (d *deployment) registerImages(ctx *pulumi.Context, images []plannedImage) error {
	for _, planned := range images {
		if planned.template.System != nil {
			image, err := components.NewSystemImage(
				ctx, planned.name, d.systemImageArgs(planned, ctx.Project()+"/"+ctx.Stack()),
			)
			if err != nil {
				return err
			}

			d.systems[planned.name] = image

			continue
		}

		image, err := components.NewTalosImage(ctx, planned.name, d.imageArgs(planned))
		if err != nil {
			return err
		}

		d.images[planned.name] = image
	}

	return nil
}

func (d *deployment) registerTemplates(ctx *pulumi.Context) error {
	for _, t := range d.plan.Templates {
		host, err := d.host(t.Host)
		if err != nil {
			return err
		}

		template, err := components.NewGoldenTemplate(ctx, t.Key+"-"+t.Host, d.templateArgs(t, host))
		if err != nil {
			return err
		}

		d.templates[templateKeyOf(t)] = template
	}

	return nil
}

// lookupContext returns the context for components with VMs: it provides what is known about existing machines.
func (d *deployment) lookupContext(ctx *pulumi.Context) *pulumi.Context {
	d.lookup.planned = plannedMachines(d.plan)

	return vmlookup.NewContext(ctx, vmlookup.Run{
		StackID: d.lastRun.stackID, Lookup: d.lookup.lookUp, Stopped: d.lookup.isStopped,
		Existed: d.lastRun.hasMachine, Bootstrapped: d.lastRun.isBootstrapped,
		Commands:       func(name string) vmlookup.Command { return d.lastRun.calls[name] },
		Configurations: func(node string) string { return d.lastRun.configurations[node] },
	})
}

func (d *deployment) registerClusters(ctx *pulumi.Context, checked map[string]components.TalosClusterArgs) error {
	for _, planned := range d.plan.Clusters {
		args := checked[planned.Name]
		d.setDependencies(&args, planned)

		cluster, err := components.NewTalosCluster(ctx, planned.Name, args)
		if err != nil {
			return err
		}

		d.clusters[planned.Name] = cluster
	}

	return nil
}

// patchPath matches the path of a patch in a cluster's arguments: a node's, or the cluster's.
var patchPath = regexp.MustCompile(`^(?:nodes\[(\d+)\]\.)?patches\[(\d+)\]$`)

// stackFilePath returns the path in the stack file of a path in a cluster's arguments; for anything but a patch, the
// cluster's path.
func stackFilePath(path string, c spec.Cluster, inArgs string) string {
	match := patchPath.FindStringSubmatch(inArgs)
	if match == nil {
		return path
	}

	paths := c.PatchPaths

	if match[1] != "" {
		node, _ := strconv.Atoi(match[1])
		paths = c.Nodes()[node].PatchPaths
	}

	index, _ := strconv.Atoi(match[2])

	return paths[index]
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
