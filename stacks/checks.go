package stacks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components"
	"talos-proxmox/internal/preflight"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/vmdiff"
)

// surroundings are who checks a plan, and what it may ask: a run of the program, or [Check].
type surroundings struct {
	project, stack string
	// preview: nothing will be changed, and what cannot be asked is a warning.
	preview bool
	// everyHost: hosts with neither prep nor gpus are queried as well.
	everyHost bool
	// blinded: encrypted values are not decrypted, as in a plan of [PlanFile].
	blinded bool
	// file is the content of the stack file; nil = there is none.
	file []byte
	// transport connects to Proxmox and the Image Factory; nil = HTTP's default.
	transport http.RoundTripper
	// facts and members run these verbs of talosops.
	facts   func(ctx context.Context, request string) (stdout string, err error)
	members func(ctx context.Context, req request.Members) (request.MembersResult, error)
	// source returns this computer's address for a machine, invalid = it has none; nil = it connects to none.
	source func(ctx context.Context, machine netip.Addr) netip.Addr
}

// evidence is what a check compares the plan with.
type evidence string

const (
	fromFile    evidence = "the stack file"
	fromState   evidence = "the state"
	fromProxmox evidence = "Proxmox"
	fromHosts   evidence = "the hosts"
)

// check is a check of a plan before anything is registered.
type check struct {
	evidence evidence
	// refusal begins the error of a run that it stops.
	refusal string
	// decisive: if it finds an error, further checks mean nothing.
	decisive bool
	// run returns what it finds. The error says why the evidence is missing.
	run func(ctx context.Context) (problem.List, error)
}

// checks are all checks of a plan: a run makes them before it registers anything, and [Check] reports them.
func (d *deployment) checks() []check {
	return []check{
		{fromProxmox, "another Proxmox answers, nothing was changed", true, d.checkProxmoxCluster},
		{fromProxmox, "machines of the stack are not the ones that it created, nothing was changed", true, d.checkIdentities},
		{fromFile, fmt.Sprintf("the configuration of stack %q has problems, nothing was changed", d.stack), false, d.checkConfiguration},
		{fromState, "the plan does not fit the running machines, nothing was changed", false, d.checkRunningMachines},
		{fromProxmox, "Proxmox' high availability does not fit the plan, nothing was changed", false, d.checkHighAvailability},
		{fromProxmox, "backup jobs of Proxmox do not fit the plan, nothing was changed", false, d.checkBackupJobs},
		{fromHosts, "the plan does not fit the hosts, nothing was changed", false, d.checkHosts},
		{fromProxmox, "Proxmox or the Image Factory does not have what is planned, nothing was changed", false, d.checkSite},
	}
}

// enforceChecks logs what the checks find, and returns the errors of all.
func (d *deployment) enforceChecks(ctx *pulumi.Context) (refused error) {
	for _, c := range d.checks() {
		found, err := c.run(ctx.Context())
		refused = errors.Join(refused, err)

		if err := logFindings(ctx, found); err != nil {
			return err
		}

		if problems := found.Errors(); len(problems) > 0 {
			refused = errors.Join(refused, fmt.Errorf("%s:\n%w", c.refusal, Located(problems, d.stack, d.file)))
			if c.decisive {
				break
			}
		}
	}

	return refused
}

// logFindings logs warnings and notes.
func logFindings(ctx *pulumi.Context, found problem.List) error {
	for _, note := range found.Notes().Lines() {
		if err := ctx.Log.Info(note, nil); err != nil {
			return fmt.Errorf("unable to log what a check found: %w", err)
		}
	}

	for _, warning := range found.Warnings().Lines() {
		if err := warn(ctx, warning); err != nil {
			return err
		}
	}

	return nil
}

// checkConfiguration generates the machine configurations of all clusters, and keeps the clusters' valid arguments. It
// also returns the plan's own warnings.
func (d *deployment) checkConfiguration(ctx context.Context) (found problem.List, err error) {
	d.arguments = map[string]components.TalosClusterArgs{}

	for i, cluster := range d.plan.Clusters {
		d.checkFirewall(ctx, fmt.Sprintf("clusters[%d].firewall.admin", i), cluster, &found)

		if text, _ := json.Marshal(cluster); d.blinded && bytes.Contains(text, []byte(spec.Blinded)) {
			found.Note(fmt.Sprintf("clusters[%d]", i), "has encrypted values, which `talos-proxmox check` reads; "+
				"its machine configurations were not checked")

			continue
		}

		args, err := d.clusterArgs(cluster).Validated(cluster.Name)
		d.arguments[cluster.Name] = args

		ofArgs := problemsOf(err)
		if err != nil && len(ofArgs) == 0 {
			return nil, err
		}

		older := ""
		if d.blinded && len(ofArgs) > 0 { // the state would say which contract the cluster has
			older = d.acceptingContract(cluster)
		}

		for _, p := range ofArgs {
			if older != "" {
				p.Severity = problem.Warning
				p.Message += "; a cluster that was made with contract " + older + " accepts it"
			}

			p.Path = stackFilePath(fmt.Sprintf("clusters[%d]", i), cluster, p.Path)
			if !isReportedPatch(found, p.Path) {
				found = append(found, p)
			}
		}

		if runs, oldest := talos.RunsGPUOperator(cluster.TalosVersion); cluster.GPUOperator && !runs {
			found.Warn("", nil, "cluster %s: NVIDIA's GPU Operator fails to validate the driver on Talos %s; use %s or later, or "+
				"set gpuOperator: false for the device plugin", cluster.Name, cluster.TalosVersion, oldest)
		}
	}

	for _, warning := range d.plan.Warnings {
		found.Warn("", nil, "%s", warning)
	}

	return append(found, d.checkMaintenanceCommands(ctx)...), nil
}

// checkFirewall warns of a firewall that seems to lock out this computer: machines may see another address of it.
func (d *deployment) checkFirewall(ctx context.Context, path string, cluster spec.Cluster, found *problem.List) {
	if cluster.Firewall == nil || d.source == nil {
		return
	}

	for _, n := range cluster.Nodes() {
		source := d.source(ctx, n.Address.Addr())
		if !source.IsValid() || cluster.Admits(source) {
			continue
		}

		found.Warn(path, nil, "does not contain the address %s with which this computer connects to %s: the firewall would lock "+
			"it out; add it, or its network, and behind a router that translates addresses (NAT) also the address that machines see",
			source, n.Name)

		return
	}
}

// acceptingContract returns the newest contract with which a cluster's patches are valid; empty = none.
func (d *deployment) acceptingContract(cluster spec.Cluster) string {
	args := d.clusterArgs(cluster)

	for _, release := range slices.Backward(talos.Releases()) {
		args.Contract = release.Contract
		if _, err := args.Validated(cluster.Name); err == nil {
			return release.Contract
		}
	}

	return ""
}

// isReportedPatch reports whether a patch of a pool, which all its machines have, has a problem already.
func isReportedPatch(found problem.List, path string) bool {
	return strings.Contains(path, ".patches[") &&
		slices.ContainsFunc(found, func(known problem.Problem) bool { return known.Path == path })
}

// checkSite compares the plan with what Proxmox and the Image Factory have.
func (d *deployment) checkSite(context.Context) (problem.List, error) {
	site := d.site()
	if site == nil {
		return nil, nil
	}

	return preflight.Check(d.plan, d.preflightStack(), site), nil
}

// preflightStack returns what the stack has created already.
func (d *deployment) preflightStack() preflight.Stack {
	last := &d.lastRun

	s := preflight.Stack{
		Project: d.project, Name: d.stack, ID: last.stackID, Empty: last.isBlank(),
		Machines: map[int]vmdiff.Machine{}, Mappings: last.mappings, Settings: last.creationSettings,
		Image:      ImageOf,
		Downloaded: last.isDownloaded, Built: last.isBuilt,
	}
	for _, m := range last.machines {
		s.Machines[m.VMID] = m
	}

	return s
}
