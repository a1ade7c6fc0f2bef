package operations

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"talos-proxmox/internal/backup"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/recovery"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talosopsexec"
	"talos-proxmox/stacks"
)

// Deployed is an existing stack: its plan, its state, and talosops to connect to its clusters.
type Deployed struct {
	Stack    string
	Project  string // folder that relative backup directories are in
	Plan     *spec.Plan
	Pulumi   recovery.Pulumi
	TalosOps string    // path of the program
	Progress io.Writer // of talosops
	OffSite  OffSite   // nil = no second copies
	// PrivateKey is the key for the hosts' shells, a secret; empty = the SSH agent.
	PrivateKey string

	proxmoxSetting proxmoxapi.Setting // the provider's settings
	config         map[string]string  // has secrets
}

// Proxmox returns a client for the stack's Proxmox, without a request.
func (d Deployed) Proxmox() *proxmoxapi.Machines {
	return proxmoxapi.NewMachines(d.proxmoxSetting, nil)
}

// OffSite stores second copies of snapshots. It identifies them by address.
type OffSite interface {
	Put(ctx context.Context, file string, now time.Time) (address string, err error)
	Fetch(ctx context.Context, address, folder string) (file string, err error)
	// Newest returns the copies of the cluster with this name and id in file names.
	Newest(ctx context.Context, name, id string, now time.Time) (backup.Found, error)
}

// ReadDeployed reads a stack's configuration with the Pulumi CLI. It takes no lock and changes nothing.
func ReadDeployed(
	ctx context.Context, pulumi recovery.Pulumi, stack, project, talosops string, progress io.Writer,
) (Deployed, error) {
	read, err := recovery.ReadConfig(ctx, pulumi, stack)
	if err != nil {
		return Deployed{}, err
	}

	config := read.Values()
	name := stack[strings.LastIndex(stack, "/")+1:]

	plan, err := stacks.PlanOfConfig(name, config)
	if err != nil {
		return Deployed{}, fmt.Errorf("the configuration of stack %q has problems:\n%w", stack, err)
	}

	return Deployed{
		Stack: stack, Project: project, Plan: plan, Pulumi: pulumi, TalosOps: talosops, Progress: progress,
		PrivateKey:     config[stacks.Project+":"+stacks.KeySSHPrivateKey],
		proxmoxSetting: proxmoxapi.Settings(func(key string) string { return config["proxmoxve:"+key] }, os.Getenv),
		config:         config,
	}, nil
}

// clusters returns the named clusters of the plan, or all.
func (d Deployed) clusters(names []string) ([]spec.Cluster, error) {
	if len(names) == 0 {
		return d.Plan.Clusters, nil
	}

	var chosen []spec.Cluster

	for _, name := range names {
		i := slices.IndexFunc(d.Plan.Clusters, func(c spec.Cluster) bool { return c.Name == name })
		if i < 0 {
			var all []string
			for _, c := range d.Plan.Clusters {
				all = append(all, c.Name)
			}

			return nil, fmt.Errorf("%q is not a cluster of stack %s: name some of %s", name, d.Stack, strings.Join(all, ", "))
		}

		chosen = append(chosen, d.Plan.Clusters[i])
	}

	return chosen, nil
}

// CheckClusters reports names that are no clusters of the plan.
func (d Deployed) CheckClusters(names []string) error {
	_, err := d.clusters(names)

	return err
}

// controlPlanes returns the common part of requests for a cluster; timeout 0 = the verb's default.
func controlPlanes(c spec.Cluster, timeout time.Duration) request.Common {
	var common request.Common
	if timeout > 0 {
		common.Timeout = timeout.String()
	}

	common.ControlPlanes = request.NodesOf(c.ControlPlanes)

	return common
}

// talosops runs a verb with a request, and returns its output, also after a failure.
func (d Deployed) talosops(ctx context.Context, verb string, req any, options ...string) ([]byte, error) {
	text, err := json.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("unable to write a request: %w", err)
	}

	stdout, err := talosopsexec.Output(ctx, d.TalosOps, verb, text, d.Progress, options...)
	if err != nil {
		err = fmt.Errorf("talosops %s did not succeed, see above: %w", verb, err)
	}

	return stdout, err
}

func (d Deployed) missingError(c spec.Cluster, what string) error {
	return fmt.Errorf("stack %s has no %s of cluster %s: bring it up once, then repeat", d.Stack, what, c.Name)
}
