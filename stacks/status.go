package stacks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"time"

	"talos-proxmox/components"
	"talos-proxmox/internal/preflight"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/recovery"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/tokens"
)

// statusTimeout is how long a cluster is asked.
const statusTimeout = "1m"

// Status queries the health of a stack's clusters.
type Status struct {
	Deployed

	// MaxAge is how old the newest snapshot of etcd may be: 48h; empty = any.
	MaxAge string
	// Proxmox is queried about the credentials; nil = not queried.
	Proxmox *proxmoxapi.Machines
}

// clusterStatus is what talosops status printed of a cluster, and its exit status.
type clusterStatus struct {
	printed []byte
	status  int
}

// Exit statuses of talosops status, and of [Status.Print].
const (
	StatusCare    = 1 // something needs care
	StatusUnknown = 2 // a cluster could not be asked
)

// Print prints the status of each named cluster, or of all: a table, or a line of JSON. It returns the worst exit
// status.
func (s Status) Print(ctx context.Context, to io.Writer, asJSON bool, names ...string) (status int, err error) {
	questions, err := s.questions(ctx, names)
	if err != nil {
		return StatusUnknown, err
	}

	for i, question := range questions {
		asked, err := s.ask(ctx, question, asJSON)
		if err != nil {
			return StatusUnknown, err
		}

		status = max(status, asked.status)

		if i > 0 && !asJSON {
			asked.printed = append([]byte("\n"), asked.printed...)
		}

		if _, err := to.Write(asked.printed); err != nil {
			return StatusUnknown, fmt.Errorf("unable to print the status: %w", err)
		}
	}

	return status, nil
}

// Drift queries the nodes of all clusters, and returns those that differ from the plan, or cannot be compared with it.
func (s Status) Drift(ctx context.Context) ([]request.NodeDifference, error) {
	s.OffSite, s.Proxmox = nil, nil // nobody asks for backups and credentials here

	questions, err := s.questions(ctx, nil)
	if err != nil {
		return nil, err
	}

	all := []request.NodeDifference{}

	for _, question := range questions {
		question.Backup, question.RebootPending = nil, nil

		asked, err := s.ask(ctx, question, true)
		if err != nil {
			return nil, err
		}

		var state request.ClusterStatus
		if err := json.Unmarshal(asked.printed, &state); err != nil {
			return nil, fmt.Errorf("talosops status printed something that is not a result: %w", err)
		}

		for _, d := range state.Drift {
			d.Cluster = question.Cluster
			all = append(all, d)
		}
	}

	return all, nil
}

// ask has talosops ask one cluster.
func (s Status) ask(ctx context.Context, question request.Status, asJSON bool) (clusterStatus, error) {
	var options []string
	if asJSON {
		options = []string{"--json"}
	}

	var said bytes.Buffer // that there is something to see

	printed, err := Deployed{TalosOps: s.TalosOps, Progress: &said}.talosops(ctx, "status", question, options...)

	var ended *exec.ExitError

	switch {
	case err == nil:
		return clusterStatus{printed, 0}, nil
	case errors.As(err, &ended) && len(printed) > 0: // it has said what is wrong
		if ended.ExitCode() == StatusCare {
			return clusterStatus{printed, StatusCare}, nil
		}

		return clusterStatus{printed, StatusUnknown}, nil
	default:
		if s.Progress != nil {
			_, _ = said.WriteTo(s.Progress) // to the terminal
		}

		return clusterStatus{}, fmt.Errorf("cluster %s: %w", question.Cluster, err)
	}
}

// questions are what talosops status reads, for each cluster.
func (s Status) questions(ctx context.Context, names []string) ([]request.Status, error) {
	clusters, err := s.clusters(names)
	if err != nil {
		return nil, err
	}

	state, err := s.readState(ctx)
	if err != nil {
		return nil, err
	}

	var credentials problem.List
	if s.Proxmox != nil {
		credentials = preflight.Credentials(ctx, s.Proxmox)
	}

	var questions []request.Status

	for _, c := range clusters {
		question := request.Status{Cluster: c.Name, Wait: planned(c), RebootPending: state.pending, Credentials: credentials}
		question.Talosconfig, question.Kubeconfig = state.talosconfigs[c.Name], state.kubeconfigs[c.Name]

		if question.Talosconfig == "" || question.Kubeconfig == "" {
			return nil, s.missing(c, "talosconfig and kubeconfig")
		}

		if question.Reader, err = state.talosconfig(c, talos.Authority.Reader); err != nil {
			return nil, s.missing(c, "machine secrets")
		}

		question.Configurations = map[string]string{}

		for _, n := range c.Nodes() {
			if text := state.configurations[n.Address.Addr().String()]; text != "" {
				question.Configurations[n.Name] = text
			}
		}

		if len(s.Plan.Backup.Recipients) > 0 {
			b := Backups{s.Deployed}
			question.Backup = &request.Kept{
				Directory: b.directory(), Name: b.fileName(c), MaxAge: s.MaxAge, OffSite: b.newestOffSite(ctx, c),
			}
		}

		questions = append(questions, question)
	}

	return questions, nil
}

// planned is what a cluster's nodes have to be.
func planned(c spec.Cluster) request.Wait {
	w := request.Wait{Common: controlPlanes(c, 0), KubernetesVersion: c.KubernetesVersion}
	w.Timeout, w.Workers = statusTimeout, requestNodes(c.Workers)

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

// lastState is what the last run of the stack left in its state.
type lastState struct {
	talosconfigs, kubeconfigs map[string]string          // by cluster; secret
	configurations            map[string]string          // by address of the node; secret
	secrets                   map[string]*clusterSecrets // by cluster
	pending                   []string                   // hosts that have to reboot
}

// of are the secrets of a cluster.
func (l lastState) of(cluster string) *clusterSecrets {
	if l.secrets[cluster] == nil {
		l.secrets[cluster] = &clusterSecrets{cluster: cluster}
	}

	return l.secrets[cluster]
}

func (d Deployed) readState(ctx context.Context) (lastState, error) {
	_, deployment, err := recovery.ReadState(ctx, d.Pulumi, d.Stack, "--show-secrets")
	if err != nil {
		return lastState{}, err
	}

	found := lastState{configurations: map[string]string{}, secrets: map[string]*clusterSecrets{}}

	for _, r := range deployment.Resources {
		if r.Delete {
			continue
		}

		outputs := recovery.Reveal(r.Outputs)

		switch string(r.Type) {
		case tokens.ConfigurationApply:
			node, _ := outputs["node"].(string)
			found.configurations[node], _ = outputs["machineConfiguration"].(string)
		case tokens.Secrets:
			of := found.of(strings.TrimSuffix(r.URN.Name(), tokens.OfSecrets))
			of.machine, _ = outputs["machineSecrets"].(object)
			of.client, _ = outputs["clientConfiguration"].(object)
		case tokens.Kubeconfig:
			text, _ := outputs["kubeconfigRaw"].(string)
			found.of(strings.TrimSuffix(r.URN.Name(), tokens.OfKubeconfig)).kubeconfig = talos.Kubeconfig(text)
		case components.TalosClusterType:
			addresses, _ := outputs["addresses"].(object)
			found.of(r.URN.Name()).nodes = slices.Sorted(maps.Keys(addresses))
		case tokens.Stack:
			found.addOutputs(outputs)
		}
	}

	return found, nil
}

// talosconfig is one of a cluster with a new client, which may do less than the administrator. While the authority of
// the Talos API is replaced, machines may not know the one that the state has the key of: then it is the
// administrator's.
func (l lastState) talosconfig(
	c spec.Cluster, as func(talos.Authority, time.Time) (talos.Client, error),
) (string, error) {
	secrets := l.of(c.Name)

	authority, replaced := secrets.authority(talos.OfTalos)
	if replaced != nil {
		return secrets.administrator().Talosconfig(c.Name, endpoints(c))
	}

	client, err := as(authority, time.Now())
	if err != nil {
		return "", err
	}

	return client.Talosconfig(c.Name, endpoints(c))
}

func (l *lastState) addOutputs(outputs object) {
	texts := func(output string) map[string]string {
		values, _ := outputs[output].(map[string]any)
		found := make(map[string]string, len(values))

		for name, value := range values {
			found[name], _ = value.(string)
		}

		return found
	}
	l.talosconfigs, l.kubeconfigs = texts(Talosconfigs), texts(Kubeconfigs)

	hosts, _ := outputs[Hosts].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		if host, _ := hosts[name].(map[string]any); host["rebootRequired"] == true {
			l.pending = append(l.pending, name)
		}
	}
}
