package machine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	clusterapi "github.com/siderolabs/talos/pkg/machinery/api/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/etcd"
	"talos-proxmox/lab/machine/manifests"
	"talos-proxmox/lab/machine/services"
)

// healthServer implements the cluster service: the health check that `talosctl health` asks a control plane to run.
type healthServer struct {
	clusterapi.UnimplementedClusterServiceServer

	m *machine
}

// healthCheck is one condition; find returns what is missing, empty when nothing is. It is called with the lock held.
// Of apps Kubernetes is asked besides.
type healthCheck struct {
	name string
	find func(h *healthRun) string
	apps []string
}

// healthRun is a running check: the nodes that are expected, by address.
type healthRun struct {
	m                      *machine
	controlPlanes, workers []string
}

// healthChecks are Talos' checks in Talos' order.
var healthChecks = []healthCheck{
	{"etcd to be healthy", func(h *healthRun) string { return h.service(h.controlPlanes, "etcd") }, nil},
	{"etcd members to be consistent across nodes", (*healthRun).etcdConsistent, nil},
	{"etcd members to be control plane nodes", (*healthRun).etcdControlPlanes, nil},
	{"apid to be ready", func(h *healthRun) string { return h.service(h.all(), "apid") }, nil},
	{"kubelet to be healthy", func(h *healthRun) string { return h.service(h.all(), "kubelet") }, nil},
	{"all nodes to finish boot sequence", (*healthRun).booted, nil},
	{"all k8s nodes to report", (*healthRun).reported, nil},
	{"all control plane static pods to be running", (*healthRun).staticPods, nil},
	{"all control plane components to be ready", (*healthRun).staticPods, controlplane.StaticPods()},
	{"all k8s nodes to report ready", (*healthRun).ready, nil},
	{"kube-proxy to report ready", (*healthRun).ready, []string{"kube-proxy"}},
	{"coredns to report ready", (*healthRun).ready, []string{"kube-dns"}},
	{"all k8s nodes to report schedulable", (*healthRun).schedulable, nil},
}

// HealthCheck implements the cluster service. The checks wait for changes, not for time.
func (s *healthServer) HealthCheck(
	in *clusterapi.HealthCheckRequest, out grpc.ServerStreamingServer[clusterapi.HealthCheckProgress],
) error {
	ctx := out.Context()

	if wait := in.GetWaitTimeout().AsDuration(); wait > 0 {
		limited, cancel := context.WithTimeout(ctx, wait)
		defer cancel()

		ctx = limited
	}

	s.m.ms.mu.Lock()
	run := s.m.healthRun(in.GetClusterInfo())
	joined := s.m.cluster
	s.m.ms.mu.Unlock()

	if run == nil || joined == nil {
		return status.Error(codes.Unavailable, "the machine is going down")
	}

	say := func(text string) error { return out.Send(&clusterapi.HealthCheckProgress{Message: text}) }

	if err := say(fmt.Sprintf("discovered nodes: %q", run.all())); err != nil {
		return err
	}

	for _, check := range healthChecks {
		if err := run.wait(ctx, joined, check, say); err != nil {
			return err
		}
	}

	return nil
}

// wait reports what a check misses whenever that changes, until nothing is missing.
func (h *healthRun) wait(ctx context.Context, joined *cluster, check healthCheck, say func(string) error) error {
	last := "..."

	if err := say("waiting for " + check.name + ": ..."); err != nil {
		return err
	}

	for {
		h.m.ms.mu.Lock()
		missing := "the machine is going down"

		if h.m.config != nil && h.m.cluster == joined {
			missing = check.find(h)
		}

		changed, mine := joined.changed.wait(), h.m.changed.wait()
		h.m.ms.mu.Unlock()

		for _, app := range check.apps {
			if missing == "" {
				missing = h.m.kube.appProblem(ctx, h, app)
			}
		}

		if missing == "" {
			return say("waiting for " + check.name + ": OK")
		}

		if missing != last {
			last = missing

			if err := say("waiting for " + check.name + ": " + missing); err != nil {
				return err
			}
		}

		select {
		case <-changed:
		case <-mine:
		case <-time.After(time.Second): // a member's service may change without a word to the cluster
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// healthRun takes the nodes from the request, else from discovery; the caller holds the lock.
func (m *machine) healthRun(info *clusterapi.ClusterInfo) *healthRun {
	if m.config == nil {
		return nil
	}

	h := &healthRun{m: m, controlPlanes: info.GetControlPlaneNodes(), workers: info.GetWorkerNodes()}
	if len(h.controlPlanes)+len(h.workers) > 0 {
		return h
	}

	for _, o := range m.discovered() {
		if o.isControlPlane() {
			h.controlPlanes = append(h.controlPlanes, o.net.Node.String())
		} else {
			h.workers = append(h.workers, o.net.Node.String())
		}
	}

	slices.Sort(h.controlPlanes)
	slices.Sort(h.workers)

	return h
}

func (h *healthRun) all() []string { return slices.Concat(h.controlPlanes, h.workers) }

// each asks every node and joins the answers that are not empty.
func (h *healthRun) each(addresses []string, find func(m *machine) string) string {
	var missing []string

	for _, a := range addresses {
		m := h.m.ms.byAddress(a)

		switch {
		case m == nil || m.cluster != h.m.cluster:
			missing = append(missing, a+": not reachable")
		default:
			if text := find(m); text != "" {
				missing = append(missing, a+": "+text)
			}
		}
	}

	return strings.Join(missing, "; ")
}

func (h *healthRun) service(addresses []string, name string) string {
	return h.each(addresses, func(m *machine) string {
		s := m.services.Get(name)

		switch {
		case s == nil:
			return fmt.Sprintf("service %q not found", name)
		case s.State != services.Running:
			return fmt.Sprintf(
				"service %q not in expected state %q: current state [%s] %s", name, services.Running, s.State, s.Message(),
			)
		case !s.Healthy() && !s.Unknown:
			return "service is not healthy: " + name
		}

		return ""
	})
}

func (h *healthRun) etcdConsistent() string {
	return h.each(h.controlPlanes, func(m *machine) string {
		if m.etcd == nil || m.etcd != h.m.etcd {
			return "is not a member of the etcd cluster"
		}

		return ""
	})
}

func (h *healthRun) etcdControlPlanes() string {
	if h.m.etcd == nil {
		return "no etcd member on " + h.m.hostname
	}

	for _, member := range h.m.etcd.Members {
		if !slices.Contains(h.controlPlanes, member.Address.String()) {
			return fmt.Sprintf("etcd member ip %q is not one of the control plane node ips %q", member.Address, h.controlPlanes)
		}
	}

	return ""
}

func (h *healthRun) booted() string {
	return h.each(h.all(), func(m *machine) string {
		if m.stage != runtime.MachineStageRunning {
			return "is " + m.stage.String()
		}

		return ""
	})
}

// node finds the Node object of an address.
func (h *healthRun) node(address string) *etcd.Node {
	if h.m.etcd == nil {
		return nil
	}

	return h.m.etcd.NodeAt(address)
}

func (h *healthRun) reported() string {
	var missing []string

	for _, a := range h.all() {
		if h.node(a) == nil {
			missing = append(missing, a)
		}
	}

	if len(missing) > 0 {
		return fmt.Sprintf("can't find expected node with IPs %q", missing)
	}

	return ""
}

func (h *healthRun) staticPods() string {
	return h.each(h.controlPlanes, func(m *machine) string {
		if !m.apiReady() {
			return fmt.Sprintf("missing static pods: %v", controlplane.StaticPods())
		}

		return ""
	})
}

func (h *healthRun) ready() string {
	var notReady []string

	for _, a := range h.all() {
		if n := h.node(a); n != nil && !h.m.etcd.IsReady(n) {
			notReady = append(notReady, n.Name)
		}
	}

	if len(notReady) > 0 {
		return fmt.Sprintf("some nodes are not ready: %v", notReady)
	}

	return ""
}

// appProblem implements kubernetes: pods of the model run where nodes are ready.
func (m modelKubernetes) appProblem(_ context.Context, _ *healthRun, app string) string {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	if m.config == nil || m.etcd == nil {
		return "the machine is going down"
	}

	if _, enabled := manifests.CoreDNS(m.config); app == "kube-dns" && enabled && !m.etcd.Schedulable() {
		return "no ready pods found for namespace \"kube-system\" and label selector \"k8s-app=kube-dns\""
	}

	return ""
}

func (h *healthRun) schedulable() string {
	var cordoned []string

	for _, a := range h.all() {
		if n := h.node(a); n != nil && n.Unschedulable {
			cordoned = append(cordoned, n.Name)
		}
	}

	if len(cordoned) > 0 {
		return fmt.Sprintf("some nodes are not schedulable: %v", cordoned)
	}

	return ""
}
