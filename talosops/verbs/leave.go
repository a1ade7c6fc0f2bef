package verbs

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/verb"
)

const leaveHelp = `Takes a node out of its cluster, before its machine is deleted:
docs/upgrades.md#taking-machines-out says how.

A node of which nothing is there has left. A run that was interrupted at any moment may be repeated: it compares with
the cluster and does what is left.`

// leaveRequest says which node leaves which cluster.
type leaveRequest struct {
	request.Leave
	verb.Limits
}

func (r *leaveRequest) Problems() problem.List {
	problems := append(r.OpenTalos(r.Talosconfig), verb.NodeProblems(r.ControlPlanes)...)
	if r.Node.Name == "" {
		problems.Add("node.name", nil, "is missing: set the node that leaves")
	}

	if _, err := netip.ParseAddr(r.Node.Address); err != nil {
		problems.Add("node.address", r.Node.Address, "is not an IP address: set the node's own")
	}

	return append(problems, backupProblems("backup.", r.Backup)...)
}

func (r *leaveRequest) isControlPlane() bool {
	return slices.ContainsFunc(r.ControlPlanes, func(n request.Node) bool { return n.Name == r.Node.Name })
}

// others are the control planes that it does not concern.
func (r *leaveRequest) others() []request.Node {
	return slices.DeleteFunc(slices.Clone(r.ControlPlanes), func(n request.Node) bool { return n.Name == r.Node.Name })
}

// leaver takes a node out of its cluster by what it finds.
type leaver struct {
	*cluster.Cluster // of the other control planes

	req  *leaveRequest
	left request.Left
}

func runLeave(ctx context.Context, s *verb.Session, req *leaveRequest) (any, error) {
	if req.Protected {
		return nil, fmt.Errorf("%s stays in its cluster: its VM is protected on Proxmox, and could not be deleted. To let it go: "+
			"talos-proxmox:protect: false in the stack file, pulumi up, then the same again", req.Node.Name)
	}

	l := &leaver{req: req, left: request.Left{Node: req.Node.Name}}

	there, err := isThere(ctx, s.Cluster, req, func(ctx context.Context, others []request.Node) (err error) {
		l.Cluster, err = s.Connect(ctx, others)

		return err
	})
	if err == nil && there {
		err = l.leave(ctx)
	}

	return l.left, err
}

// isThere opens the cluster that the node is to leave, with the control planes that answer first; false where none was
// ever begun.
func isThere(
	ctx context.Context, c *cluster.Cluster, req *leaveRequest, open func(context.Context, []request.Node) error,
) (there bool, err error) {
	if len(req.others()) == 0 {
		f, begun := c.KnowsEtcd(ctx, req.Node)
		if !begun && f.Problem == "" {
			return false, nil
		}

		return false, fmt.Errorf("%s is the only control plane, so it is left as it is: with it the cluster's etcd would be "+
			"lost. Add control planes first (controlPlane.count: 3); or, if the cluster's data may go, set its bootstrapEmpty in "+
			"the stack file, remove the VM on Proxmox and run pulumi up --refresh, or run pulumi destroy", req.Node.Name)
	}

	opened := checks.Goal{
		Before: "the cluster answered", Missed: "no other control plane of the cluster answers",
		Remedy: "start or repair one of these control planes",
	}
	err = c.Until(ctx, opened, func(ctx context.Context) checks.Report {
		var (
			current         checks.Report
			answer, further []request.Node
		)

		for _, n := range req.others() {
			f, begun := c.KnowsEtcd(ctx, n)
			current = append(current, f)

			if there = there || begun; begun {
				answer = append(answer, n)
			} else {
				further = append(further, n)
			}
		}

		if len(answer) == 0 { // unless all of them wait for a cluster, it may be where no one answers
			return current
		}

		if err := open(ctx, append(answer, further...)); err != nil {
			return append(current, checks.Open(req.Node.Name, "cluster", err.Error(), "")...)
		}

		return nil
	})

	return there, err
}
