package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/request"
)

const leaveHelp = `Takes a node out of its cluster, before its machine is deleted.

A worker is cordoned and drained through the Eviction API, its machine is reset (STATE and EPHEMERAL are wiped, and it
shuts down), and its Node object is deleted once the machine is silent. A control plane also gives up its leadership and
leaves etcd before it is reset, and is seen gone by the others. It leaves only where another member stays and all others
are healthy; a snapshot of etcd is kept before, where the request says where.

A node whose VM is protected on Proxmox is refused before anything is touched: it would leave, and its VM would stay.

A machine that is silent is done without after half a minute: it is drained as long as Kubernetes hears from its node,
its member is removed through another one, and its Node object is deleted. A node of which nothing is there has left. A
run that was interrupted at any moment may be repeated: it compares with the cluster and does what is left. One that
fails before the machine leaves etcd or is reset lifts its cordon.

One operator changes a cluster at a time: see the lease kube-system/talos-proxmox. The request comes as JSON on standard
input; timeout (default 15m) and interval (default 2s) can be omitted. What it does, and every 15 seconds what it waits
for, is a line on standard error; the result is one line of JSON on standard output.`

const leaveExample = `  talosops leave --timeout 30m < request.json

  request.json:
  {
    "talosconfig": "context: prod\ncontexts: …",
    "controlPlanes": [{"name": "prod-cp-1", "address": "10.0.0.10"}],
    "node": {"name": "prod-w-1", "address": "10.0.0.20"},
    "backup": {"name": "home-prod", "directory": "/var/backups/talos", "recipients": ["age1…"], "keep": 14}
  }`

// leaveRequest says which node leaves which cluster.
type leaveRequest struct {
	request.Leave
	limits
}

func (r *leaveRequest) problems() []string {
	problems := slices.Concat(talosconfigProblems(r.Talosconfig), nodeProblems(r.ControlPlanes))
	if r.Node.Name == "" {
		problems = append(problems, "node.name: is missing: set the node that leaves")
	}

	if _, err := netip.ParseAddr(r.Node.Address); err != nil {
		problems = append(
			problems, fmt.Sprintf("node.address: %q is not an IP address: set the node's own", r.Node.Address),
		)
	}

	if r.Backup != nil {
		problems = append(problems, backupProblems("backup.", *r.Backup)...)
	}

	return problems
}

func (r *leaveRequest) isControlPlane() bool {
	return slices.ContainsFunc(r.ControlPlanes, func(n node) bool { return n.Name == r.Node.Name })
}

// others are the control planes that it does not concern.
func (r *leaveRequest) others() []node {
	return slices.DeleteFunc(slices.Clone(r.ControlPlanes), func(n node) bool { return n.Name == r.Node.Name })
}

// leaveTalos asks one machine's Talos API on its own address.
type leaveTalos interface {
	clusterTalos
	snapshotAPI
	forfeit(ctx context.Context, address string) error
	leaveEtcd(ctx context.Context, address string) error
	removeMember(ctx context.Context, address string, id uint64) error
	reset(ctx context.Context, address string) error
}

// leaveKubernetes asks the Kubernetes API on one control plane's own address.
type leaveKubernetes interface {
	clusterKubernetes
	deleteNode(ctx context.Context, address string, n kubeNode) error
}

// leaver takes a node out of its cluster by what it finds.
type leaver struct {
	*cluster // of the other control planes

	req        *leaveRequest
	talos      leaveTalos
	kubernetes leaveKubernetes
	left       request.Left
}

func newLeave() *cobra.Command {
	cmd := &cobra.Command{
		Use: "leave", Short: "Take a node out of its cluster", Long: leaveHelp, Example: leaveExample,
	}

	return withRequest(cmd, func() *leaveRequest { return &leaveRequest{} }, runLeave)
}

func runLeave(cmd *cobra.Command, req *leaveRequest) error {
	if req.Protected {
		return fmt.Errorf("%s stays in its cluster: its VM is protected on Proxmox, and could not be deleted. To let it go: "+
			"talos-proxmox:protect: false in the stack file, pulumi up, then the same again", req.Node.Name)
	}

	talos, err := newTalosAPI(req.Talosconfig)
	if err != nil {
		return err
	}
	defer talos.close()

	w := newWatch(&req.limits, cmd.ErrOrStderr())

	var c *cluster

	there, err := isThere(cmd.Context(), w, req, talos, func(ctx context.Context, others []node) (err error) {
		c, err = openCluster(ctx, w, talos, others)

		return err
	})
	if err != nil {
		return err
	}

	l := &leaver{req: req, left: request.Left{Node: req.Node.Name}}
	if there {
		l.cluster, l.talos, l.kubernetes = c, talos, c.kubernetes.(*kubernetesClients)
		err = l.leave(cmd.Context())
	}

	if err != nil {
		return err
	}

	return printResult(cmd.OutOrStdout(), l.left)
}

// isThere opens the cluster that the node is to leave, with the control planes that answer first; false where none was
// ever begun.
func isThere(
	ctx context.Context, w *watch, req *leaveRequest, talos etcdAPI, open func(context.Context, []node) error,
) (there bool, err error) {
	b := newBootstrapper(&bootstrapRequest{limits: req.limits}, talos, io.Discard)

	if len(req.others()) == 0 {
		f, begun := b.lookAt(ctx, req.Node)
		if !begun && f.problem == "" {
			return false, nil
		}

		return false, fmt.Errorf("%s is the only control plane, so it is left as it is: with it the cluster's etcd would be "+
			"lost. Add control planes first (controlPlane.count: 3); or, if the cluster's data may go, set its bootstrapEmpty in "+
			"the stack file, remove the VM on Proxmox and run pulumi up --refresh, or run pulumi destroy", req.Node.Name)
	}

	opened := goal{
		before: "the cluster answered", missed: "no other control plane of the cluster answers",
		remedy: "start or repair one of these control planes",
	}
	err = w.until(ctx, opened, func(ctx context.Context) (report, bool) {
		var (
			current         report
			answer, further []node
		)

		for _, n := range req.others() {
			f, begun := b.lookAt(ctx, n)
			current = append(current, f)

			if there = there || begun; begun {
				answer = append(answer, n)
			} else {
				further = append(further, n)
			}
		}

		if len(answer) == 0 { // unless all of them wait for a cluster, it may be where no one answers
			return current, len(current.open()) == 0
		}

		if err := open(ctx, append(answer, further...)); err != nil {
			return append(current, finding{node: req.Node.Name, check: "cluster", problem: err.Error()}), false
		}

		return current, true
	})

	return there, err
}
