package operations

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"

	"talos-proxmox/internal/preflight"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
)

// statusTimeout limits the queries of a cluster.
const statusTimeout = "1m"

// Status queries the health of a stack's clusters.
type Status struct {
	Deployed

	// MaxAge is how old the newest snapshot of etcd may be: 48h; empty = any.
	MaxAge string
	// Proxmox is queried about the credentials, and where machines are; nil = not queried.
	Proxmox *proxmoxapi.Machines

	localVolumes bool // ask for the volumes of pods on nodes
}

// Exit statuses of talosops status, and of [Status.Print].
const (
	StatusAttention = 1 // something needs attention
	StatusUnknown   = 2 // a cluster could not be queried
)

// Print prints the status of each named cluster, or of all: a table, or a line of JSON. It returns the worst exit
// status.
func (s Status) Print(ctx context.Context, to io.Writer, asJSON bool, names ...string) (status int, err error) {
	requests, err := s.requests(ctx, names)
	if err != nil {
		return StatusUnknown, err
	}

	for i, req := range requests {
		printed, of, err := s.query(ctx, req, asJSON)
		if err != nil {
			return StatusUnknown, err
		}

		status = max(status, of)

		if i > 0 && !asJSON {
			printed = append([]byte("\n"), printed...)
		}

		if _, err := to.Write(printed); err != nil {
			return StatusUnknown, fmt.Errorf("unable to print the status: %w", err)
		}
	}

	return status, nil
}

// Drift queries the nodes of all clusters, and returns those that differ from the plan, or cannot be compared with it.
func (s Status) Drift(ctx context.Context) ([]request.NodeDifference, error) {
	s.OffSite, s.Proxmox = nil, nil // backups and credentials are not part of it

	requests, err := s.requests(ctx, nil)
	if err != nil {
		return nil, err
	}

	all := []request.NodeDifference{}

	for _, req := range requests {
		req.Backup, req.RebootPending = nil, nil

		printed, _, err := s.query(ctx, req, true)
		if err != nil {
			return nil, err
		}

		var state request.ClusterStatus
		if err := json.Unmarshal(printed, &state); err != nil {
			return nil, fmt.Errorf("talosops status printed an invalid result: %w", err)
		}

		for _, d := range state.Drift {
			d.Cluster = req.Cluster
			all = append(all, d)
		}
	}

	return all, nil
}

// cluster returns the status of a cluster.
func (s Status) cluster(ctx context.Context, name string) (state request.ClusterStatus, err error) {
	s.OffSite = nil // backups are not part of it

	requests, err := s.requests(ctx, []string{name})
	if err != nil {
		return state, err
	}

	printed, _, err := s.query(ctx, requests[0], true)
	if err != nil {
		return state, err
	}

	if err := json.Unmarshal(printed, &state); err != nil {
		return state, fmt.Errorf("talosops status printed an invalid result: %w", err)
	}

	return state, nil
}

// query has talosops query a cluster, and returns its output and exit status.
func (s Status) query(ctx context.Context, req request.Status, asJSON bool) (printed []byte, status int, err error) {
	var options []string
	if asJSON {
		options = []string{"--json"}
	}

	var progress bytes.Buffer // shown only if there is no result

	printed, err = Deployed{TalosOps: s.TalosOps, Progress: &progress}.talosops(ctx, "status", req, options...)

	var ended *exec.ExitError

	switch {
	case err == nil:
		return printed, 0, nil
	case errors.As(err, &ended) && len(printed) > 0: // the result says what is wrong
		if ended.ExitCode() == StatusAttention {
			return printed, StatusAttention, nil
		}

		return printed, StatusUnknown, nil
	default:
		if s.Progress != nil {
			_, _ = progress.WriteTo(s.Progress)
		}

		return nil, StatusUnknown, fmt.Errorf("cluster %s: %w", req.Cluster, err)
	}
}

// requests returns the request for talosops status of each cluster.
func (s Status) requests(ctx context.Context, names []string) ([]request.Status, error) {
	clusters, err := s.clusters(names)
	if err != nil {
		return nil, err
	}

	state, err := s.readState(ctx)
	if err != nil {
		return nil, err
	}

	var (
		credentials problem.List
		proxmox     datacentre
	)

	if s.Proxmox != nil {
		credentials = preflight.Credentials(ctx, s.Proxmox)
		if proxmox = readDatacentre(ctx, s.Proxmox, hasHA(s.Plan)); hasReplication(s.Plan) {
			proxmox.readReplication(ctx, s.Proxmox)
		}
	}

	var requests []request.Status

	for _, c := range clusters {
		req := request.Status{
			Cluster: c.Name, Wait: waitRequest(c), RebootPending: state.rebootPending, Credentials: credentials,
			LocalVolumes: s.localVolumes,
			Users:        &request.Clients{Talosconfig: state.talosconfigs[c.Name], Kubeconfig: state.kubeconfigs[c.Name]},
		}
		if s.Proxmox != nil {
			req.Placement = proxmox.placement(s.Stack, c, state.hosts)
		}

		if req.Talosconfig, err = state.talosconfig(c, talos.Authority.TemporaryAdministrator); err == nil {
			req.Kubeconfig, err = state.kubeconfig(c)
		}

		if err == nil {
			req.Reader, err = state.talosconfig(c, talos.Authority.Reader)
		}

		if err != nil {
			return nil, s.missingError(c, "machine secrets")
		}

		req.Configurations = map[string]string{}

		for _, n := range c.Nodes() {
			if text := state.configurations[n.Address.Addr().String()]; text != "" {
				req.Configurations[n.Name] = text
			}
		}

		if len(s.Plan.Backup.Recipients) > 0 {
			b, id := Backups{s.Deployed}, state.backupID(c)
			req.Backup = &request.BackupStatus{
				Directory: b.directory(), Name: b.Plan.BackupName(c), ID: id, MaxAge: s.MaxAge,
				OffSite: b.newestOffSite(ctx, c, id),
			}
		}

		requests = append(requests, req)
	}

	return requests, nil
}

// waitRequest returns what the nodes of a cluster are expected to run and offer.
func waitRequest(c spec.Cluster) request.Wait {
	w := request.Wait{Common: controlPlanes(c, 0), KubernetesVersion: c.KubernetesVersion}
	w.Timeout, w.Workers = statusTimeout, request.NodesOf(c.Workers)

	for _, n := range c.Nodes() {
		image := n.Template.Talos
		w.Versions = append(
			w.Versions, request.Versions{Node: n.Name, Talos: image.Version, Schematic: image.SchematicID()},
		)

		if len(n.GPUs) > 0 && !c.GPUOperator {
			w.GPUs = append(w.GPUs, request.GPUs{Node: n.Name, Count: len(n.GPUs) * max(n.TimeSlicing, 1)})
		}
	}

	return w
}
