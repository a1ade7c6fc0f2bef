package health_test

import (
	"context"
	"net/netip"
	"testing"

	clusterapi "github.com/siderolabs/talos/pkg/machinery/api/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"talos-proxmox/lab/machine/health"
)

const (
	first = "127.20.1.11"
	last  = "127.20.1.21"
)

func healthy() health.State {
	return health.State{
		Hostname: "first", Etcd: true, Members: []netip.Addr{netip.MustParseAddr(first)},
		Machines: map[string]health.Member{
			first: {Stage: runtime.MachineStageRunning, Etcd: true, API: true},
			last:  {Stage: runtime.MachineStageRunning},
		},
		Nodes: map[string]health.Node{first: {Name: "first", Ready: true}, last: {Name: "last", Ready: true}},
	}
}

// stream collects the messages of the check.
type stream struct {
	grpc.ServerStreamingServer[clusterapi.HealthCheckProgress]

	ctx   context.Context //nolint:containedctx // as gRPC's streams
	lines []string
}

func (s *stream) Context() context.Context { return s.ctx }

func (s *stream) Send(p *clusterapi.HealthCheckProgress) error {
	s.lines = append(s.lines, p.GetMessage())

	return nil
}

func TestChecksReportProblemsUntilResolved(t *testing.T) {
	t.Parallel()

	for want, damage := range map[string]func(*health.State){
		`etcd to be healthy: 127.20.1.11: service "etcd" not found`: func(s *health.State) {
			s.Machines[first] = health.Member{Service: map[string]string{"etcd": `service "etcd" not found`}}
		},
		"etcd members to be consistent across nodes: 127.20.1.11: is not a member of the etcd cluster": func(s *health.State) {
			s.Machines[first] = health.Member{API: true}
		},
		"etcd members to be control plane nodes: no etcd member on first": func(s *health.State) { s.Etcd = false },
		`etcd members to be control plane nodes: etcd member ip "127.20.1.21" is not one of the control plane node ips ` +
			`["127.20.1.11"]`: func(s *health.State) { s.Members[0] = netip.MustParseAddr(last) },
		"apid to be ready: 127.20.1.21: not reachable": func(s *health.State) { delete(s.Machines, last) },
		"all nodes to finish boot sequence: 127.20.1.21: is booting": func(s *health.State) {
			s.Machines[last] = health.Member{Stage: runtime.MachineStageBooting}
		},
		`all k8s nodes to report: can't find expected node with IPs ["127.20.1.21"]`: func(s *health.State) {
			delete(s.Nodes, last)
		},
		"all control plane static pods to be running: 127.20.1.11: missing static pods: " +
			"[kube-apiserver kube-controller-manager kube-scheduler]": func(s *health.State) {
			s.Machines[first] = health.Member{Stage: runtime.MachineStageRunning, Etcd: true}
		},
		"all k8s nodes to report ready: some nodes are not ready: [last]": func(s *health.State) {
			s.Nodes[last] = health.Node{Name: "last"}
		},
		"all k8s nodes to report schedulable: some nodes are not schedulable: [last]": func(s *health.State) {
			s.Nodes[last] = health.Node{Name: "last", Ready: true, Cordoned: true}
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()

			looks, state, changed := 0, healthy(), make(chan struct{})
			damage(&state)
			close(changed)

			server := &health.Server{
				Discovered: func() (controlPlanes, workers []string) { return []string{first}, []string{last} },
				State: func() (health.State, bool, <-chan struct{}, <-chan struct{}) {
					if looks++; looks > 20 { // after every check has looked
						state = healthy()
					}

					return state, true, changed, changed
				},
				AppProblem: func(context.Context, string, int) string { return "" },
			}
			out := &stream{ctx: t.Context()}

			require.NoError(t, server.HealthCheck(&clusterapi.HealthCheckRequest{}, out))
			assert.Contains(t, out.lines, "waiting for "+want)
			assert.Equal(t, "waiting for all k8s nodes to report schedulable: OK", out.lines[len(out.lines)-1])
		})
	}
}

func TestMachineGoingDown(t *testing.T) {
	t.Parallel()

	server := &health.Server{Discovered: func() (controlPlanes, workers []string) { return nil, nil }}
	require.ErrorContains(t, server.HealthCheck(&clusterapi.HealthCheckRequest{}, &stream{ctx: t.Context()}),
		"the machine is going down")
}
