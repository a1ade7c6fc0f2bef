// Package health is the health check that `talosctl health` asks a control plane to run: Talos' checks in Talos' order,
// each of which waits for changes of the cluster, not for time.
package health

import (
	"context"
	"fmt"
	"slices"
	"time"

	clusterapi "github.com/siderolabs/talos/pkg/machinery/api/cluster"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Machine is the control plane that is asked.
type Machine interface {
	// Cluster is the machine's, with the addresses of the nodes that it discovers; nil when the machine is going down.
	Cluster() (c Cluster, controlPlanes, workers []string)
}

// Cluster is what a check follows. No method is called with a lock held.
type Cluster interface {
	// Look is what is known at this moment; false when the machine is going down or has left the cluster. The channels
	// close when that may have changed.
	Look() (s State, there bool, mine, others <-chan struct{})
	// AppProblem is what the pods of an app in kube-system miss, by their label k8s-app; empty where they run.
	AppProblem(ctx context.Context, app string, controlPlanes int) string
}

// Server implements the cluster service.
type Server struct {
	clusterapi.UnimplementedClusterServiceServer

	Machine Machine
}

// HealthCheck implements the cluster service.
func (s *Server) HealthCheck(
	in *clusterapi.HealthCheckRequest, out grpc.ServerStreamingServer[clusterapi.HealthCheckProgress],
) error {
	ctx := out.Context()

	if wait := in.GetWaitTimeout().AsDuration(); wait > 0 {
		limited, cancel := context.WithTimeout(ctx, wait)
		defer cancel()

		ctx = limited
	}

	cluster, controlPlanes, workers := s.Machine.Cluster()
	if cluster == nil {
		return status.Error(codes.Unavailable, goingDown)
	}

	if info := in.GetClusterInfo(); len(info.GetControlPlaneNodes())+len(info.GetWorkerNodes()) > 0 {
		controlPlanes, workers = info.GetControlPlaneNodes(), info.GetWorkerNodes()
	} else {
		slices.Sort(controlPlanes)
		slices.Sort(workers)
	}

	r := &run{
		cluster: cluster, nodes: nodes{controlPlanes, workers},
		say: func(text string) error { return out.Send(&clusterapi.HealthCheckProgress{Message: text}) },
	}

	if err := r.say(fmt.Sprintf("discovered nodes: %q", r.nodes.all())); err != nil {
		return err
	}

	for _, one := range checks {
		if err := r.wait(ctx, one); err != nil {
			return err
		}
	}

	return nil
}

const goingDown = "the machine is going down"

// run is a running check.
type run struct {
	cluster Cluster
	nodes   nodes
	say     func(string) error
}

// wait reports what a check misses whenever that changes, until nothing is missing.
func (r *run) wait(ctx context.Context, one check) error {
	last := "..."

	if err := r.say("waiting for " + one.name + ": ..."); err != nil {
		return err
	}

	for {
		missing := goingDown

		state, there, mine, others := r.cluster.Look()
		if there {
			missing = one.find(state, r.nodes)
		}

		for _, app := range one.apps {
			if missing == "" {
				missing = r.cluster.AppProblem(ctx, app, len(r.nodes.controlPlanes))
			}
		}

		if missing == "" {
			return r.say("waiting for " + one.name + ": OK")
		}

		if missing != last {
			last = missing

			if err := r.say("waiting for " + one.name + ": " + missing); err != nil {
				return err
			}
		}

		select {
		case <-others:
		case <-mine:
		case <-time.After(time.Second): // a member's service may change without a word to the cluster
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}
