// Package stacks turns a stack's configuration into components and outputs.
package stacks

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/pulumi/pulumi-command/sdk/go/command/local"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components"
	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/preflight"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talosopsexec"
	"talos-proxmox/internal/tlsprobe"
	"talos-proxmox/internal/vmdiff"
	"talos-proxmox/internal/vmlookup"
)

// deployment is what one run of the program registers.
type deployment struct {
	settings
	surroundings
	hosts         map[string]*hostState              // those with prep or gpus, by name
	images        map[string]*components.TalosImage  // by name
	systems       map[string]*components.SystemImage // by name
	templates     map[templateKey]*components.GoldenTemplate
	mappings      map[string]pulumi.StringOutput // names of mappings, by the name of devices
	clusters      map[string]*components.TalosCluster
	cloudMachines map[string]*components.CloudMachine // by name
	lookup        *machineLookup
	lastRun       lastRun
	stateErr      error                                  // why the state cannot be read
	site          func() *preflight.Site                 // what Proxmox and the Image Factory have; nil = not asked
	arguments     map[string]components.TalosClusterArgs // of clusters, by name; set by the checks
	versions      map[string]versions                    // by cluster
	zones         map[string]string                      // current hosts of nodes, by node name
	haDrift       map[string]string                      // differences that the checks found, by command
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

// newID returns an id for a stack that has none: by default 16 random hexadecimal digits.
func (p Program) newID() string {
	if p.NewID != nil {
		return p.NewID()
	}

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

	file := engineConfiguration(ctx)

	s, problems := readSettings(ctx.Stack(), file)
	if len(problems) > 0 {
		return fmt.Errorf("the configuration of stack %q has problems, nothing was changed:\n%w", ctx.Stack(),
			Located(problems, ctx.Stack(), file.file))
	}

	d := newDeployment(ctx.Context(), s, surroundings{
		project: ctx.Project(), stack: ctx.Stack(), preview: ctx.DryRun(), file: file.file, transport: p.Transport,
		source: tlsprobe.Source,
		facts:  func(_ context.Context, request string) (string, error) { return queryFacts(ctx, request) },
		members: func(_ context.Context, req request.Members) (found request.MembersResult, err error) {
			return found, talosopsexec.Query(ctx, "members", req, &found)
		},
	})
	d.lookup.warn = ctx.Log.Warn

	last, stateErr := loadLastRun(ctx)
	// If the record cannot be read, the stack must not get a new id.
	if last.record != nil && last.stackID == "" {
		last.stackID = p.newID()
	}

	d.useLastRun(last, ownership.Of(ctx.Organization(), ctx.Project(), ctx.Stack(), ""), stateErr)
	ctx = vmlookup.NewContext(ctx, vmlookup.Run{StackID: d.lastRun.stackID})

	if err := d.enforceChecks(ctx); err != nil {
		return errors.Join(err, d.lastRun.recordRefusal(ctx))
	}

	if stateErr == nil {
		if err := d.registerRecord(ctx); err != nil {
			return err
		}
	}

	withLookups := d.lookupContext(ctx)

	for _, step := range []func() error{
		func() error { return d.registerErrorAdvice(ctx) },
		func() error { return d.registerHosts(ctx) },
		func() error { return d.registerImages(ctx) },
		func() error { return d.registerTemplates(ctx) },
		func() error { return d.registerMappings(ctx) },
		func() error { return d.registerClusters(withLookups) },
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

// registerRecord records what this run plans, before it changes anything.
func (d *deployment) registerRecord(ctx *pulumi.Context) error {
	d.versions = map[string]versions{}
	for _, cluster := range d.plan.Clusters {
		d.versions[cluster.Name] = d.lastRun.versions[cluster.Name].next(cluster)
	}

	return d.lastRun.registerRecord(ctx, vmdiff.CreationSettings(d.plan), d.versions)
}

// newDeployment returns a deployment before its checks.
func newDeployment(ctx context.Context, s settings, by surroundings) *deployment {
	d := &deployment{
		settings:      s,
		surroundings:  by,
		images:        map[string]*components.TalosImage{},
		systems:       map[string]*components.SystemImage{},
		templates:     map[templateKey]*components.GoldenTemplate{},
		mappings:      map[string]pulumi.StringOutput{},
		clusters:      map[string]*components.TalosCluster{},
		zones:         map[string]string{},
		cloudMachines: map[string]*components.CloudMachine{},
		lookup: &machineLookup{
			proxmox: proxmoxapi.NewMachines(s.proxmox, by.transport), preview: by.preview,
		},
	}

	// In previews only: an update normally follows one.
	d.site = sync.OnceValue(func() *preflight.Site {
		if !d.preview {
			return nil
		}

		return preflight.Read(ctx, preflight.Sources{
			Plan: d.plan, Stack: d.preflightStack(), Endpoint: d.proxmox("endpoint"), Proxmox: d.lookup.proxmox,
			Factory: d.factory, Transport: d.transport,
		})
	})

	return d
}

// queryFacts queries the facts of hosts with one call of talosops, also in previews.
func queryFacts(ctx *pulumi.Context, request string) (string, error) {
	logging, addPreviousOutput := local.LoggingNone, false

	result, err := local.Run(ctx, &local.RunArgs{
		Command: talosopsexec.Command(ctx) + "facts", Stdin: &request, Logging: &logging,
		AddPreviousOutputInEnv: &addPreviousOutput,
	})
	if err != nil {
		return "", err
	}

	return result.Stdout, nil
}

func (d *deployment) registerImages(ctx *pulumi.Context) error {
	for _, planned := range d.plannedImages {
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
		VersionChanges: func(cluster string) int { return d.versions[cluster].changes },
		Commands:       func(name string) vmlookup.Command { return d.lastRun.calls[name] },
		Drift:          func(name string) string { return d.haDrift[name] },
		Configurations: func(node string) string { return d.lastRun.configurations[node] },
	})
}

func (d *deployment) registerClusters(ctx *pulumi.Context) error {
	for _, planned := range d.plan.Clusters {
		args := d.arguments[planned.Name]
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
