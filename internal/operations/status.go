package operations

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	"talos-proxmox/internal/preflight"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/terminal"
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

	localVolumes   bool // ask for the volumes of pods on nodes
	withoutBackups bool
}

// Exit statuses of talosops status, and of [Status.Print].
const (
	StatusAttention = 1 // something needs attention
	StatusUnknown   = 2 // a cluster could not be queried
)

// Print prints the status of each named cluster, or of all: a table, or a line of JSON. It returns the worst exit
// status.
func (s Status) Print(ctx context.Context, to io.Writer, asJSON bool, names ...string) (status int, err error) {
	clusters, err := s.clusters(names)
	if err != nil {
		return StatusUnknown, err
	}

	e, err := s.ask(ctx)
	if err != nil {
		return StatusUnknown, err
	}

	for i, c := range clusters {
		found, err := s.queryCluster(ctx, e, c)
		if err != nil {
			return StatusUnknown, err
		}

		status = max(status, exitStatus(found))
		text := found.Table(terminal.Of(to).Width())

		switch {
		case asJSON:
			line, err := json.Marshal(found)
			if err != nil {
				return StatusUnknown, fmt.Errorf("unable to print the status: %w", err)
			}

			text = string(line) + "\n"
		case i > 0:
			text = "\n" + text
		}

		if _, err := io.WriteString(to, text); err != nil {
			return StatusUnknown, fmt.Errorf("unable to print the status: %w", err)
		}
	}

	return status, nil
}

// exitStatus returns the exit status for a cluster.
func exitStatus(s request.ClusterStatus) int {
	switch s.Status {
	case request.StatusOK:
		return 0
	case request.StatusUnknown:
		return StatusUnknown
	default:
		return StatusAttention
	}
}

// Overview is what runs of a stack. What was not answered says so, and hides nothing of the rest.
type Overview struct {
	Clusters []request.ClusterStatus
	// Placement is where Proxmox has all machines of the stack; nil = not asked.
	Placement *request.Placement
	// Pending are operations that the state has as begun: of a run in progress, or of one that was killed.
	Pending []string
}

// Overview queries the named clusters, or all, at the same time. A cluster that cannot be queried, such as before the
// first up, is one that does not answer.
func (s Status) Overview(ctx context.Context, names ...string) (o Overview, err error) {
	clusters, err := s.clusters(names)
	if err != nil {
		return o, err
	}

	e, stateErr := s.ask(ctx)

	o.Pending = e.state.pending

	if s.Proxmox != nil {
		var machines []spec.VM
		for _, m := range s.Plan.Members() {
			machines = append(machines, m.VM)
		}

		o.Placement = e.proxmox.placement(s.Stack, machines, e.state.hosts)
	}

	o.Clusters = make([]request.ClusterStatus, len(clusters))

	var wg sync.WaitGroup

	for i, c := range clusters {
		req, err := request.Status{}, stateErr
		if err == nil {
			req, err = s.request(ctx, e, c)
		}

		wg.Go(func() {
			var found request.ClusterStatus
			if err == nil {
				found, err = s.query(ctx, req)
			}

			if err != nil {
				found = request.ClusterStatus{Cluster: c.Name, Status: request.StatusUnknown, Asked: time.Now().UTC()}
				found.Care.Add(c.Name, nil, "%v", err)
			}

			o.Clusters[i] = found
		})
	}

	wg.Wait()

	return o, ctx.Err()
}

// Drift queries the nodes of all clusters, and returns those that differ from the plan, or cannot be compared with it.
func (s Status) Drift(ctx context.Context) ([]request.NodeDifference, error) {
	s.OffSite, s.Proxmox, s.withoutBackups = nil, nil, true // backups and credentials are not part of it

	e, err := s.ask(ctx)
	if err != nil {
		return nil, err
	}

	e.state.rebootPending = nil
	all := []request.NodeDifference{}

	for _, c := range s.Plan.Clusters {
		found, err := s.queryCluster(ctx, e, c)
		if err != nil {
			return nil, err
		}

		for _, d := range found.Drift {
			d.Cluster = c.Name
			all = append(all, d)
		}
	}

	return all, nil
}

// cluster returns the status of a cluster.
func (s Status) cluster(ctx context.Context, name string) (state request.ClusterStatus, err error) {
	s.OffSite = nil // backups are not part of it

	clusters, err := s.clusters([]string{name})
	if err != nil {
		return state, err
	}

	e, err := s.ask(ctx)
	if err != nil {
		return state, err
	}

	return s.queryCluster(ctx, e, clusters[0])
}

// stackEvidence is what all clusters of a stack have in common.
type stackEvidence struct {
	state       lastState
	credentials problem.List
	proxmox     datacentre
}

// ask reads the state, and asks Proxmox; if the state cannot be read, it has the rest.
func (s Status) ask(ctx context.Context) (e stackEvidence, err error) {
	if s.Proxmox != nil {
		e.credentials = preflight.Credentials(ctx, s.Proxmox)
		if e.proxmox = readDatacentre(ctx, s.Proxmox, hasHA(s.Plan)); hasReplication(s.Plan) {
			e.proxmox.readReplication(ctx, s.Proxmox)
		}
	}

	e.state, err = s.readState(ctx)

	return e, err
}

// queryCluster has talosops query a cluster.
func (s Status) queryCluster(ctx context.Context, e stackEvidence, c spec.Cluster) (request.ClusterStatus, error) {
	req, err := s.request(ctx, e, c)
	if err != nil {
		return request.ClusterStatus{}, err
	}

	return s.query(ctx, req)
}

func (s Status) query(ctx context.Context, req request.Status) (found request.ClusterStatus, err error) {
	var progress bytes.Buffer // shown only if there is no result

	printed, err := Deployed{TalosOps: s.TalosOps, Progress: &progress}.talosops(ctx, "status", req, "--json")

	// A result says what is wrong, with an exit status.
	if ended := new(exec.ExitError); err != nil && (!errors.As(err, &ended) || len(printed) == 0) {
		if s.Progress == nil {
			return found, fmt.Errorf("cluster %s: %w: %s", req.Cluster, err, strings.TrimSpace(progress.String()))
		}

		_, _ = progress.WriteTo(s.Progress)

		return found, fmt.Errorf("cluster %s: %w", req.Cluster, err)
	}

	if err := json.Unmarshal(printed, &found); err != nil {
		return found, fmt.Errorf("talosops status printed an invalid result: %w", err)
	}

	return found, nil
}

// request returns the request for talosops status of a cluster.
func (s Status) request(ctx context.Context, e stackEvidence, c spec.Cluster) (req request.Status, err error) {
	state := e.state

	req = request.Status{
		Cluster: c.Name, Wait: waitRequest(c), RebootPending: state.rebootPending, Credentials: e.credentials,
		LocalVolumes: s.localVolumes,
		Users:        &request.Clients{Talosconfig: state.talosconfigs[c.Name], Kubeconfig: state.kubeconfigs[c.Name]},
	}
	if s.Proxmox != nil {
		req.Placement = e.proxmox.placement(s.Stack, machinesOf(c.Nodes()), state.hosts)
	}

	if req.Talosconfig, err = state.talosconfig(c, talos.Authority.TemporaryAdministrator); err == nil {
		req.Kubeconfig, err = state.kubeconfig(c)
	}

	if err == nil {
		req.Reader, err = state.talosconfig(c, talos.Authority.Reader)
	}

	if err != nil {
		return req, s.missingError(c, "machine secrets")
	}

	req.Configurations = map[string]string{}

	for _, n := range c.Nodes() {
		if text := state.configurations[n.Address.Addr().String()]; text != "" {
			req.Configurations[n.Name] = text
		}
	}

	if len(s.Plan.Backup.Recipients) > 0 && !s.withoutBackups {
		b, id := Backups{s.Deployed}, state.backupID(c)
		req.Backup = &request.BackupStatus{
			Directory: b.directory(), Name: b.Plan.BackupName(c), ID: id, MaxAge: s.MaxAge, OffSite: b.newestOffSite(ctx, c, id),
		}
	}

	return req, nil
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
