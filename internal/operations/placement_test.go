package operations

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
)

// TestPlacement: where machines are, and what Proxmox did not tell.
func TestPlacement(t *testing.T) {
	t.Parallel()

	const (
		hosts    = `[{"node": "pve2", "status": "offline"}, {"node": "pve1", "status": "online", "maxcpu": 16, "cpu": 0.25, "maxmem": 64, "mem": 48}]`
		machines = `[{"vmid": 2000, "node": "pve1", "status": "running", "type": "qemu"},
			{"vmid": 2001, "node": "pve1", "status": "running", "type": "qemu"}, {"vmid": 3000, "node": "pve2", "status": "unknown", "type": "qemu"}]`
		services = `[{"type": "quorum", "node": "pve1"}, {"type": "service", "sid": "vm:3000", "node": "pve2", "state": "fence"}]`
	)

	node := func(name string, vmid int, host string, pinned bool) spec.Node {
		return spec.Node{VM: spec.VM{Name: name, VMID: vmid, Host: host, HostPinned: pinned}}
	}
	cluster := spec.Cluster{
		ControlPlanes: []spec.Node{node("cp-1", 2000, "pve2", false), node("cp-2", 2001, "pve2", true)},
		Workers:       []spec.Node{node("w-1", 3000, "pve2", false), node("w-2", 3001, "pve1", false)},
	}
	last := map[int]string{2000: "pve1", 2001: "pve2", 3000: "pve2", 3001: "pve1"}

	placed := []request.PlacedMachine{
		{Node: "cp-1", VMID: 2000, Host: "pve1", HostStatus: "online", Status: "running"},
		{Node: "cp-2", VMID: 2001, Host: "pve1", HostStatus: "online", Status: "running", PlannedHost: "pve2"},
		{Node: "w-1", VMID: 3000, Host: "pve2", HostStatus: "offline", Status: "unknown"},
		{Node: "w-2", VMID: 3001},
	}
	started := append([]request.PlacedMachine{}, placed...)
	started[2].HA = "fence"

	for name, test := range map[string]struct {
		answers map[string]string
		ha      bool
		want    request.Placement
	}{
		"all is told": {
			answers: map[string]string{
				"/nodes": hosts, "/cluster/resources": machines, "/cluster/ha/status/current": services,
				"/cluster/status": `[{"type": "cluster", "quorate": 1}]`,
			},
			ha: true, want: request.Placement{Machines: started},
		},
		"there is no quorum": {
			answers: map[string]string{"/nodes": hosts, "/cluster/resources": machines, "/cluster/status": `[{"type": "cluster", "quorate": 0}]`},
			want:    request.Placement{Machines: placed, NoQuorum: true},
		},
		"a role without Sys.Audit": {
			answers: map[string]string{"/nodes": hosts, "/cluster/resources": machines},
			ha:      true,
			want: request.Placement{Machines: placed, NotAsked: []string{
				"whether Proxmox' cluster has quorum, without which other hosts only seem offline: Proxmox answers 403 Forbidden",
				"what becomes of machines with high availability: Proxmox answers 403 Forbidden",
			}},
		},
		"nothing is told": {
			want: request.Placement{NotAsked: []string{
				"where machines are, and whether their hosts are online: unable to list Proxmox' hosts: Proxmox answers 403 Forbidden",
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				answer, told := test.answers[r.URL.Path[len("/api2/json"):]]
				if !told {
					w.WriteHeader(http.StatusForbidden)

					return
				}

				_, err := w.Write([]byte(`{"data": ` + answer + `}`))
				assert.NoError(t, err)
			}))
			t.Cleanup(server.Close)

			proxmox := proxmoxapi.NewMachines(func(key string) string {
				return map[string]string{"endpoint": server.URL, "apiToken": "a@pve!b=c", "insecure": "true"}[key]
			}, nil)

			want := test.want
			if want.Stack = "prod"; want.Machines != nil {
				want.Hosts = []request.PlacementHost{
					{Name: "pve1", Status: "online", Cores: 16, CPU: 0.25, MemoryBytes: 64, MemoryUsedBytes: 48}, {Name: "pve2", Status: "offline"},
				}
			}

			asked := readDatacentre(t.Context(), proxmox, test.ha)
			assert.Equal(t, &want, asked.placement("prod", machinesOf(cluster.Nodes()), last))
		})
	}
}
