package live

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"talos-proxmox/internal/operations"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/timeline"
)

// asked is when the overview of tests was collected.
var asked = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func newPlan() *spec.Plan {
	vm := func(name, host string, vmid int, address string) spec.VM {
		return spec.VM{
			Name: name, Host: host, VMID: vmid, Address: netip.MustParsePrefix(address), Cores: 2, MemoryMiB: 4096, DiskGiB: 40,
			Datastore: "local-zfs", Template: spec.Template{Talos: spec.Talos{Version: "v1.14.4"}},
		}
	}
	node := func(vm spec.VM, cluster string, role spec.Role) spec.Node {
		return spec.Node{VM: vm, Cluster: cluster, Role: role}
	}
	cluster := func(name string, controlPlane spec.VM, workers ...spec.Node) spec.Cluster {
		return spec.Cluster{
			Name: name, Endpoint: "https://10.0.0.10:6443", TalosVersion: "v1.14.4", KubernetesVersion: "v1.37.2",
			Network:       spec.Network{CIDR: netip.MustParsePrefix("10.0.0.0/24"), Bridge: "vmbr0"},
			ControlPlanes: []spec.Node{node(controlPlane, name, spec.RoleControlPlane)}, Workers: workers,
		}
	}

	return &spec.Plan{
		Stack: "prod",
		Hosts: []spec.Host{
			{Name: "pve1", Address: netip.MustParseAddr("10.0.0.2")}, {Name: "pve2", Address: netip.MustParseAddr("10.0.0.3")},
		},
		Clusters: []spec.Cluster{
			cluster("prod", vm("prod-cp-1", "pve1", 2000, "10.0.0.10/24"),
				node(vm("prod-gpu-1", "pve2", 3000, "10.0.0.20/24"), "prod", spec.RoleWorker)),
			cluster("test", vm("test-cp-1", "pve2", 2100, "10.0.0.30/24")),
		},
		Machines: []spec.Machine{{VM: vm("web-1", "pve1", 5000, "10.0.0.60/24"), Password: "not to be seen"}},
	}
}

// newOverview has a cluster that needs care, and one that does not answer. A worker was moved to pve1.
func newOverview() operations.Overview {
	prod := request.ClusterStatus{
		Cluster: "prod", Status: request.StatusCare, Asked: asked,
		Members: []request.Member{{Name: "prod-cp-1", Leader: true, Healthy: true}},
		Nodes: []request.NodeStatus{
			{
				Name: "prod-cp-1", Role: "control plane", Answers: true, Ready: "yes",
				NodeVersions: talos.NodeVersions{Talos: "v1.14.3", Schematic: "376567988ad370138ad8b2698212367b", Kubelet: "v1.37.2", APIServer: "v1.37.2"},
			},
			{
				Name: "prod-gpu-1", Role: "worker", Answers: true, Ready: "no", Cordoned: true,
				GPUs: []request.Offer{{Resource: "nvidia.com/gpu", Offered: 0, Planned: 1}},
			},
		},
		Certificates: []request.Certificate{{Of: "kubeconfig", Ends: asked.Add(20 * 24 * time.Hour)}},
		Backup:       &request.NewestBackup{Snapshot: "/backups/prod.age", Taken: asked.Add(-7 * time.Hour)},
	}
	prod.Care.Add("prod-cp-1", nil, "runs Talos v1.14.3 (planned: v1.14.4)")
	prod.Care.Add("prod-gpu-1", nil, "it offers 0 of 1 nvidia.com/gpu")

	test := request.ClusterStatus{
		Cluster: "test", Status: request.StatusUnknown, Asked: asked, Nodes: []request.NodeStatus{{Name: "test-cp-1", Role: "control plane"}},
	}
	test.Care.Add("test-cp-1", nil, "Talos does not answer on 10.0.0.30: <script>alert(1)</script>")

	placement := &request.Placement{
		Stack: "prod",
		Machines: []request.PlacedMachine{
			{Node: "prod-cp-1", VMID: 2000, Host: "pve1", HostStatus: "online", Status: "running"},
			{Node: "prod-gpu-1", VMID: 3000, Host: "pve1", HostStatus: "online", Status: "running", PlannedHost: "pve2"},
			{Node: "test-cp-1", VMID: 2100, Host: "pve2", HostStatus: "offline", Status: "unknown"},
			{Node: "web-1", VMID: 5000, Host: "pve1", HostStatus: "online", Status: "stopped"},
		},
		Hosts: []request.PlacementHost{
			{Name: "pve1", Status: "online", Cores: 16, CPU: 0.254, MemoryBytes: 64 << 30, MemoryUsedBytes: 48 << 30},
			{Name: "pve2", Status: "offline"},
		},
	}
	prod.Placement, test.Placement = placement, placement

	return operations.Overview{Clusters: []request.ClusterStatus{prod, test}, Placement: placement}
}

// newCollector collects the overview of tests, unless a test has another one.
func newCollector(t *testing.T, collect func(context.Context) (operations.Overview, error)) *Collector {
	t.Helper()

	if collect == nil {
		collect = func(context.Context) (operations.Overview, error) { return newOverview(), nil }
	}

	return NewCollector(Source{
		Stack: "prod", Interval: 5 * time.Second, Plan: newPlan(),
		Collect: func(ctx context.Context) (*spec.Plan, operations.Overview, error) {
			o, err := collect(ctx)

			return newPlan(), o, err
		},
		Runs: timeline.NewFile(filepath.Join(t.TempDir(), "log")),
	})
}

var errProxmox = errors.New("unable to ask Proxmox: no route to host")
