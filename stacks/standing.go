package stacks

import (
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

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"

	"talos-proxmox/internal/recovery"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
)

// How the resource is called that applies a node's machine configuration, and how long a cluster is asked.
const (
	typeConfiguration = "talos:machine/configurationApply:ConfigurationApply"
	statusTimeout     = "1m"
)

// Standing asks how the clusters of a stack are.
type Standing struct {
	Deployed

	// MaxAge is how old the newest snapshot of etcd may be: 48h; empty = any.
	MaxAge string
}

// clusterStanding is what talosops status printed of a cluster, and its exit status.
type clusterStanding struct {
	printed []byte
	status  int
}

// Exit statuses of talosops status, and of [Standing.Print].
const (
	StandingCare    = 1 // something needs care
	StandingUnknown = 2 // a cluster could not be asked
)

// Print has talosops status say how each named cluster is, or all of them: a table, or a line of JSON. It returns the
// worst exit status.
func (s Standing) Print(ctx context.Context, to io.Writer, asJSON bool, names ...string) (status int, err error) {
	questions, err := s.questions(ctx, names)
	if err != nil {
		return StandingUnknown, err
	}

	for i, question := range questions {
		asked, err := s.ask(ctx, question, asJSON)
		if err != nil {
			return StandingUnknown, err
		}

		status = max(status, asked.status)

		if i > 0 && !asJSON {
			asked.printed = append([]byte("\n"), asked.printed...)
		}

		if _, err := to.Write(asked.printed); err != nil {
			return StandingUnknown, fmt.Errorf("unable to print the status: %w", err)
		}
	}

	return status, nil
}

// Difference is where a node is not what is planned for it, or was applied to it last.
type Difference struct {
	request.NodeDifference

	Cluster string `json:"cluster"`
}

// Drift asks the nodes of all clusters, and returns those that differ from the plan, or cannot be compared with it.
func (s Standing) Drift(ctx context.Context) ([]Difference, error) {
	questions, err := s.questions(ctx, nil)
	if err != nil {
		return nil, err
	}

	all := []Difference{}

	for _, question := range questions {
		question.Backup, question.RebootPending = nil, nil

		asked, err := s.ask(ctx, question, true)
		if err != nil {
			return nil, err
		}

		var standing request.Standing
		if err := json.Unmarshal(asked.printed, &standing); err != nil {
			return nil, fmt.Errorf("talosops status printed something that is not a result: %w", err)
		}

		for _, d := range standing.Drift {
			all = append(all, Difference{d, question.Cluster})
		}
	}

	return all, nil
}

// ask has talosops ask one cluster.
func (s Standing) ask(ctx context.Context, question request.Status, asJSON bool) (clusterStanding, error) {
	var options []string
	if asJSON {
		options = []string{"--json"}
	}

	printed, err := s.talosops(ctx, "status", question, options...)

	var ended *exec.ExitError

	switch {
	case err == nil:
		return clusterStanding{printed, 0}, nil
	case errors.As(err, &ended) && len(printed) > 0: // it has said what is wrong
		if ended.ExitCode() == StandingCare {
			return clusterStanding{printed, StandingCare}, nil
		}

		return clusterStanding{printed, StandingUnknown}, nil
	default:
		return clusterStanding{}, fmt.Errorf("cluster %s: %w", question.Cluster, err)
	}
}

// questions are what talosops status reads, for each cluster.
func (s Standing) questions(ctx context.Context, names []string) ([]request.Status, error) {
	clusters, err := s.clusters(names)
	if err != nil {
		return nil, err
	}

	left, err := s.readLeft(ctx)
	if err != nil {
		return nil, err
	}

	var questions []request.Status

	for _, c := range clusters {
		question := request.Status{Cluster: c.Name, Wait: planned(c), RebootPending: left.pending}
		question.Talosconfig, question.Kubeconfig = left.talosconfigs[c.Name], left.kubeconfigs[c.Name]

		if question.Talosconfig == "" || question.Kubeconfig == "" {
			return nil, s.missing(c, "talosconfig and kubeconfig")
		}

		if question.Reader, err = left.talosconfig(c, talos.Authority.Reader); err != nil {
			return nil, s.missing(c, "machine secrets")
		}

		question.Configurations = map[string]string{}

		for _, n := range c.Nodes() {
			if text := left.configurations[n.Address.Addr().String()]; text != "" {
				question.Configurations[n.Name] = text
			}
		}

		if len(s.Plan.Backup.Recipients) > 0 {
			b := Backups{s.Deployed}
			question.Backup = &request.Kept{Directory: b.directory(), Name: b.fileName(c), MaxAge: s.MaxAge}
		}

		questions = append(questions, question)
	}

	return questions, nil
}

// planned is what a cluster's nodes have to be.
func planned(c spec.Cluster) request.Wait {
	w := request.Wait{Common: controlPlanes(c, 0), KubernetesVersion: c.KubernetesVersion}
	w.Timeout = statusTimeout

	for _, n := range c.Workers {
		w.Workers = append(w.Workers, request.Node{Name: n.Name, Address: n.Address.Addr().String()})
	}

	for _, n := range c.Nodes() {
		image := talosOf(n.Template)
		w.Versions = append(
			w.Versions, request.Versions{Node: n.Name, Talos: image.Version, Schematic: image.SchematicID()},
		)

		if len(n.GPUs) > 0 && !c.GPUOperator {
			w.GPUs = append(w.GPUs, request.GPUs{Node: n.Name, Count: len(n.GPUs) * max(n.TimeSlicing, 1)})
		}
	}

	return w
}

// left is what the stack's last run left.
type left struct {
	talosconfigs, kubeconfigs map[string]string // by cluster; secret
	configurations            map[string]string // by address of the node; secret
	secrets                   map[string]clusterSecrets
	pending                   []string // hosts that have to reboot
}

func (d Deployed) readLeft(ctx context.Context) (left, error) {
	_, deployment, err := recovery.ReadState(ctx, d.Pulumi, d.Stack, "--show-secrets")
	if err != nil {
		return left{}, err
	}

	found := left{configurations: map[string]string{}, secrets: map[string]clusterSecrets{}}

	for _, r := range deployment.Resources {
		switch {
		case r.Delete:
		case r.Type == typeConfiguration:
			outputs := recovery.Reveal(r.Outputs)
			node, _ := outputs["node"].(string)
			found.configurations[node], _ = outputs["machineConfiguration"].(string)
		case r.Type == typeSecrets:
			cluster := strings.TrimSuffix(r.URN.Name(), secretsSuffix)
			found.secrets[cluster] = secretsOf(r)
		case r.Type == "pulumi:pulumi:Stack":
			found.addOutputs(r)
		}
	}

	return found, nil
}

// talosconfig is one of a cluster with a new client, which may do less than the administrator. While the authority of
// the Talos API is replaced, machines may not know the one that the state has the key of: then it is the
// administrator's.
func (l left) talosconfig(
	c spec.Cluster, as func(talos.Authority, time.Time) (talos.Client, error),
) (string, error) {
	secrets := l.secrets[c.Name]

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

func (l *left) addOutputs(r apitype.ResourceV3) {
	outputs := recovery.Reveal(r.Outputs)
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
