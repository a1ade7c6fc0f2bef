package verbs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/verb"
)

const leaveHelp = `Removes a node from its cluster, before its machine is deleted:
docs/upgrades.md#taking-machines-out says how.

A node has left once nothing of it remains. A run that was interrupted at any moment can be repeated: it compares with
the cluster and does what is left.`

// leaveRequest names the node that leaves its cluster.
type leaveRequest struct {
	request.Leave
	verb.Base
}

func (r *leaveRequest) Problems() problem.List {
	problems := append(r.openTalos(time.Now()), verb.NodeProblems(r.ControlPlanes)...)
	if r.Node.Name == "" {
		problems.Add("node.name", nil, "is missing: set the node that leaves")
	}

	if !r.Node.Address.IsValid() {
		problems.Add("node.address", nil, "is missing: set the node's own")
	}

	return append(problems, backupProblems("backup.", r.Backup)...)
}

// openTalos creates the client of the request, with a certificate that is issued for it now.
func (r *leaveRequest) openTalos(now time.Time) (problems problem.List) {
	if r.Authority == nil {
		return r.OpenTalos(r.Talosconfig)
	}

	client, err := r.Authority.TemporaryAdministrator(now)
	if err == nil {
		r.Talosconfig, err = client.Talosconfig(r.Node.Name, []string{r.Node.Address.String()})
	}

	if err != nil {
		problems.Add("authority", nil, "%v", err)

		return problems
	}

	return r.OpenTalos(r.Talosconfig)
}

func (r *leaveRequest) isControlPlane() bool {
	return hasNode(r.ControlPlanes, r.Node.Name)
}

// otherControlPlanes returns the control planes that stay.
func (r *leaveRequest) otherControlPlanes() []request.Node {
	return slices.DeleteFunc(slices.Clone(r.ControlPlanes), func(n request.Node) bool { return n.Name == r.Node.Name })
}

// leaver removes a node from its cluster.
type leaver struct {
	*cluster.Cluster // without the node that leaves

	req    *leaveRequest
	result request.LeaveResult
}

func runLeave(ctx context.Context, s *verb.Session, req *leaveRequest) (any, error) {
	if req.Protected {
		return nil, fmt.Errorf("%s stays in its cluster: its VM is protected on Proxmox, and could not be deleted. To remove it, set "+
			"talos-proxmox:protect: false in the stack file, run pulumi up, then the same again", req.Node.Name)
	}

	l := &leaver{req: req, result: request.LeaveResult{Node: req.Node.Name}}

	err := connectOthers(ctx, s.Cluster, req, func(ctx context.Context, others []request.Node) (err error) {
		l.Cluster, err = s.Connect(ctx, others)

		return err
	})
	if err == nil {
		err = l.leave(ctx)
	}

	return l.result, err
}

// connectOthers connects to the cluster through its other control planes, those that know of etcd first. A node has
// this command only once its cluster was bootstrapped, so that a cluster without etcd data has lost it.
func connectOthers(
	ctx context.Context, c *cluster.Cluster, req *leaveRequest, connect func(context.Context, []request.Node) error,
) error {
	if len(req.otherControlPlanes()) == 0 {
		if f, exists := c.CheckEtcd(ctx, req.Node); !exists && f.Problem == "" {
			return onlyCopyError(ctx, c, req)
		}

		return fmt.Errorf("%s is the only control plane, so it is left as it is: with it the cluster's etcd would be "+
			"lost. Add control planes first (controlPlane.count: 3); or, if the cluster's data may go, set its bootstrapEmpty in "+
			"the stack file, remove the VM on Proxmox and run pulumi up --refresh, or run pulumi destroy", req.Node.Name)
	}

	goal := checks.Goal{
		Before: "the cluster answered", Missed: "no other control plane of the cluster answers",
		Remedy: "start or repair one of these control planes",
	}

	var refusal error

	err := c.Until(ctx, goal, func(ctx context.Context) checks.Report {
		var (
			current       checks.Report
			ready, others []request.Node
		)

		for _, n := range req.otherControlPlanes() {
			f, bootstrapped := c.CheckEtcd(ctx, n)
			current = append(current, f)

			if bootstrapped {
				ready = append(ready, n)
			} else {
				others = append(others, n)
			}
		}

		switch {
		case len(ready) > 0:
		case refusesCredentials(current):
			refusal = credentialsError(req.Node, current)

			return nil
		case len(current.Open()) == 0: // all of them wait for a cluster; otherwise the unreachable ones may have it
			refusal = onlyCopyError(ctx, c, req)

			return nil
		default:
			return current
		}

		if err := connect(ctx, append(ready, others...)); err != nil {
			return append(current, checks.Problem(req.Node.Name, "cluster", err.Error(), "")...)
		}

		return nil
	})

	return errors.Join(err, refusal)
}
