// Package cluster operates on a running cluster: it checks etcd, services, nodes and GPUs, drains nodes, and holds the
// Lease that serializes changes.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/talosapi"
)

// Names of checks in progress and errors.
const (
	EtcdCheck  = "etcd"
	APICheck   = "Kubernetes API" // whether a control plane's API server is ready
	BootCheck  = "boot"
	DrainCheck = "drain"
	GPUCheck   = "GPU"
	NodeCheck  = "node"
)

// Cluster is a running cluster whose machines are changed one at a time.
type Cluster struct {
	*checks.Watch

	ControlPlanes []request.Node
	Excluded      request.Node // a machine that is being changed or removed, whose state does not matter; may be empty
	Talos         talosapi.API
	Kubernetes    kube.Interface
	Kubeconfig    string // the administrator's

	DrainLimit  time.Duration        // how long pods may take to leave a node; 0 = drainTimeout
	HealthCheck string               // the user's own command; empty = there is none
	Maintenance *request.Maintenance // when machines may be interrupted; nil = at any time, without commands
}

// RequireMaintenance returns an error outside of the cluster's maintenance windows. Subject is what is not done:
// one-cp-1 is not restarted.
func (c *Cluster) RequireMaintenance(subject string) error {
	if refusal := c.Maintenance.Refusal(time.Now()); refusal != "" {
		return fmt.Errorf("%s: %s", subject, refusal)
	}

	return nil
}

// Connect returns the cluster with a client of its Kubernetes API. The kubeconfig comes from the first control plane
// that provides one.
func (c *Cluster) Connect(ctx context.Context, controlPlanes []request.Node) (*Cluster, error) {
	var problems []error

	for _, n := range controlPlanes {
		text, err := c.Talos.Kubeconfig(ctx, n.Address)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %s", n.Name, talosapi.Cause(err)))

			continue
		}

		kubernetes, err := kube.New(text)
		if err != nil {
			return nil, fmt.Errorf("%s: kubeconfig: %w", n.Name, err)
		}

		connected := *c
		connected.ControlPlanes, connected.Kubernetes, connected.Kubeconfig = controlPlanes, kubernetes, text

		return &connected, nil
	}

	return nil, fmt.Errorf("no control plane provides a kubeconfig:\n%w", errors.Join(problems...))
}

// FirstAnswer asks one node after the other until one answers. It returns that node's address as well.
func FirstAnswer[T any](
	nodes []request.Node, ask func(address netip.Addr) (T, error),
) (answer T, address netip.Addr, err error) {
	for _, n := range nodes {
		if answer, err = ask(n.Address); err == nil {
			return answer, n.Address, nil
		}
	}

	return answer, netip.Addr{}, err
}

// Unreachable reports that a node's Talos API does not answer.
func Unreachable(n request.Node, check string, err error) checks.Report {
	return checks.Problem(n.Name, check, "Talos does not answer on "+n.Address.String(), talosapi.Cause(err))
}

// ListNodes asks the control planes for the nodes. It returns the address of the one that answered as well.
func (c *Cluster) ListNodes(ctx context.Context) (nodes []kube.Node, address netip.Addr, err error) {
	nodes, address, err = FirstAnswer(c.ControlPlanes, func(address netip.Addr) ([]kube.Node, error) {
		return c.Kubernetes.Nodes(ctx, address)
	})
	if err != nil {
		err = &listError{err}
	}

	return nodes, address, err
}

// FindNode returns the Node object of a machine, or nil if it is not registered.
func (c *Cluster) FindNode(ctx context.Context, n request.Node) (now *kube.Node, address netip.Addr, err error) {
	nodes, address, err := c.ListNodes(ctx)
	if found, registered := kube.Find(nodes, n.Name); registered {
		now = &found
	}

	return now, address, err
}

// Machines are those that are part of a cluster: its registered nodes and members of etcd.
type Machines struct {
	Address netip.Addr // of the control plane that listed the nodes; invalid = none did
	Nodes   []kube.Node
	Members []talosapi.Member
}

// Has reports whether a machine is part of the cluster. One that is not is new, and joins later.
func (m Machines) Has(n request.Node) bool {
	_, registered := kube.Find(m.Nodes, n.Name)

	return registered || slices.ContainsFunc(m.Members, func(member talosapi.Member) bool { return member.RunsOn(n) })
}

// ListMachines asks the control planes for the machines of the cluster.
func (c *Cluster) ListMachines(ctx context.Context) (m Machines, err error) {
	if m.Nodes, m.Address, err = c.ListNodes(ctx); err == nil {
		m.Members, _, err = FirstAnswer(c.ControlPlanes, func(address netip.Addr) ([]talosapi.Member, error) {
			return c.Talos.Members(ctx, address)
		})
	}

	return m, err
}

// listError says that no Kubernetes API lists the nodes.
type listError struct{ error }

func (e *listError) Error() string { return "unable to list the nodes: " + e.error.Error() }
func (e *listError) Unwrap() error { return e.error }

// NodesUnknown reports that nothing is known about a node because no Kubernetes API lists the nodes.
func NodesUnknown(node, check string, err error) checks.Report {
	if list := new(listError); errors.As(err, &list) {
		err = list.error
	}

	return checks.Problem(node, check, "no Kubernetes API lists the nodes", err.Error())
}

// AwaitReboot waits until a machine's boot id differs from before.
func (c *Cluster) AwaitReboot(ctx context.Context, n request.Node, before string) error {
	goal := checks.Goal{
		Before: n.Name + " had booted again", Missed: n.Name + " has not booted again",
		Remedy: "look at its console, or at talosctl --nodes " + n.Address.String() + " dmesg; `talosctl --nodes " + n.Address.String() +
			" reboot` ends a shutdown that hangs",
	}

	return c.Until(ctx, goal, func(ctx context.Context) checks.Report {
		id, err := c.Talos.BootID(ctx, n.Address)
		switch {
		case err != nil:
			return Unreachable(n, BootCheck, err)
		case id == before:
			return checks.Problem(n.Name, BootCheck, "has not shut down yet", "")
		default:
			return nil
		}
	})
}

// AwaitBootID waits until a machine answers, and returns its boot id.
func (c *Cluster) AwaitBootID(
	ctx context.Context, limit time.Duration, n request.Node, check string,
) (id string, answers bool) {
	_ = c.Within(ctx, limit, checks.Goal{}, func(ctx context.Context) checks.Report {
		boot, err := c.Talos.BootID(ctx, n.Address)
		if err != nil {
			return Unreachable(n, check, err)
		}

		id, answers = boot, true

		return nil
	})

	return id, answers
}

// Without returns the cluster without one machine, whose state does not matter then.
func (c *Cluster) Without(n request.Node) *Cluster {
	others := *c
	others.Excluded = n
	others.ControlPlanes = slices.DeleteFunc(slices.Clone(c.ControlPlanes), func(o request.Node) bool { return o == n })

	return &others
}

// DropNewControlPlanes removes control planes that this run is creating: no members of etcd, not registered, and not
// answering.
func (c *Cluster) DropNewControlPlanes(ctx context.Context) error {
	known, err := c.ListMachines(ctx)
	if err != nil {
		return nil // nobody knows which ones are new; the checks that follow name what is wrong
	}

	c.ControlPlanes = slices.DeleteFunc(slices.Clone(c.ControlPlanes), func(n request.Node) bool {
		if known.Has(n) {
			return false
		}

		_, err := c.Talos.BootID(ctx, n.Address)

		return err != nil
	})

	return ctx.Err()
}
