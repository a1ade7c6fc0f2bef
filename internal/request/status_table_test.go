package request_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
)

// TestTableFits: in a width, long lines are wrapped, and the least important columns are left out.
func TestTableFits(t *testing.T) {
	t.Parallel()

	asked := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	s := request.ClusterStatus{
		Cluster: "home", Status: request.StatusCare, Asked: asked,
		Nodes: []request.NodeStatus{{
			Name: "home-gpu-1", Role: "worker", Ready: "yes", GPUs: []request.Offer{{Resource: "nvidia.com/gpu", Offered: 1, Planned: 1}},
			NodeVersions: talos.NodeVersions{Talos: "v1.14.4", Schematic: "d92d047950e6aaaa", Kubelet: "v1.37.2"},
		}},
		Placement:    &request.Placement{Machines: []request.PlacedMachine{{Node: "home-gpu-1", Host: "pve1", HostStatus: "online", PlannedHost: "pve3"}}},
		Certificates: []request.Certificate{{Of: "kubeconfig", Ends: asked.Add(50 * time.Hour)}},
		Backup:       &request.NewestBackup{Snapshot: "/mnt/" + strings.Repeat("long/", 20), Taken: asked.Add(-time.Hour)},
	}
	s.Care.Add("home-gpu-1", nil, "%s", strings.Repeat("a long problem ", 10))

	wide := s.Table(0)
	assert.Contains(t, wide, "NODE        ROLE    TALOS    SCHEMATIC     KUBELET  API SERVER  ETCD  READY  GPUS                HOST\n")
	assert.Contains(t, wide, "home-gpu-1  worker  v1.14.4  d92d047950e6  v1.37.2  -           -     yes    1/1 nvidia.com/gpu  pve1 (planned pve3)\n")

	for width, head := range map[int]string{
		100: "NODE        ROLE    TALOS    KUBELET  ETCD  READY  GPUS                HOST\n",
		80:  "NODE        TALOS    ETCD  READY  GPUS                HOST\n",
		40:  "NODE        TALOS    ETCD  READY  GPUS …\n",
	} {
		table := s.Table(width)
		assert.Contains(t, table, head)
		assert.Contains(t, table, "kubeconfig   2026-12-01  2 days\n")

		for line := range strings.SplitSeq(table, "\n") {
			assert.True(t, utf8.RuneCountInString(line) <= width || strings.Contains(line, "long/long/"), "%d: %s", width, line)
		}
	}

	assert.Contains(t, s.Table(40), "  home-gpu-1: a long problem a long\n    problem a long problem")
}
