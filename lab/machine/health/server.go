// Package health is the health check that `talosctl health` runs on a control plane: Talos' checks in Talos' order,
// which wait for changes of the cluster.
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

// Server implements the cluster service of a control plane. None of its functions is called with a lock held.
type Server struct {
	clusterapi.UnimplementedClusterServiceServer

	// Discovered returns the addresses of the discovered nodes.
	Discovered func() (controlPlanes, workers []string)
	// State returns the current state; ok is false if the machine is going down. The channels close when it may have
	// changed.
	State func() (s State, ok bool, machine, cluster <-chan struct{})
	// AppProblem returns why the pods of an app in kube-system, selected by their label k8s-app, are not ready; empty if
	// they are.
	AppProblem func(ctx context.Context, app string, controlPlanes int) string
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

	controlPlanes, workers := s.Discovered()
	if len(controlPlanes) == 0 {
		return status.Error(codes.Unavailable, goingDown)
	}

	if info := in.GetClusterInfo(); len(info.GetControlPlaneNodes())+len(info.GetWorkerNodes()) > 0 {
		controlPlanes, workers = info.GetControlPlaneNodes(), info.GetWorkerNodes()
	} else {
		slices.Sort(controlPlanes)
		slices.Sort(workers)
	}

	r := &run{
		Server: s, nodes: nodes{controlPlanes, workers},
		send: func(text string) error { return out.Send(&clusterapi.HealthCheckProgress{Message: text}) },
	}

	if err := r.send(fmt.Sprintf("discovered nodes: %q", r.nodes.all())); err != nil {
		return err
	}

	for _, c := range checks {
		if err := r.wait(ctx, c); err != nil {
			return err
		}
	}

	return nil
}

const goingDown = "the machine is going down"

// run is a running health check.
type run struct {
	*Server

	nodes nodes
	send  func(string) error
}

// wait reports what a check misses whenever that changes, until nothing is missing.
func (r *run) wait(ctx context.Context, c check) error {
	last := "..."

	if err := r.send("waiting for " + c.name + ": ..."); err != nil {
		return err
	}

	for {
		missing := goingDown

		state, ok, machine, cluster := r.State()
		if ok {
			missing = c.find(state, r.nodes)
		}

		for _, app := range c.apps {
			if missing == "" {
				missing = r.AppProblem(ctx, app, len(r.nodes.controlPlanes))
			}
		}

		if missing == "" {
			return r.send("waiting for " + c.name + ": OK")
		}

		if missing != last {
			last = missing

			if err := r.send("waiting for " + c.name + ": " + missing); err != nil {
				return err
			}
		}

		select {
		case <-cluster:
		case <-machine:
		case <-time.After(time.Second): // changes of members' services do not notify the cluster
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}
