package verbs

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/clustertest"
)

// TestStatusOfHosts: an offline host is named with its machines, with what becomes of them, and with what is needed.
func TestStatusOfHosts(t *testing.T) {
	t.Parallel()

	const member = "pve2: the host is offline, with cp-2, w-1 on it; etcd of cluster prod has its majority (2 of 3 members: cp-1, cp-3); "

	for name, test := range map[string]struct {
		change  func(*request.Placement)
		cluster func(*clustertest.Fake)
		want    []string
	}{
		"no host is offline": {change: func(p *request.Placement) {
			p.Machines[1].HostStatus, p.Machines[2].HostStatus = "online", "unknown"
		}},
		"a host is offline": {want: []string{
			member + "if it comes back, wait: its machines start with it; only if it is gone for good: talos-proxmox replace home --host pve2 " +
				"(docs/recovery.md#a-host-is-lost)",
		}},
		"one that high availability takes over": {
			change: func(p *request.Placement) { p.Machines[1].HA, p.Machines[2].HA = "recovery", "fence" },
			want: []string{
				member + "Proxmox' high availability: cp-2 waits for a host that its rules allow (recovery), w-1 is started on another host once " +
					"this one is fenced (fence); wait, and see docs/high-availability.md if a machine stays",
			},
		},
		"one that has lost etcd's majority": {
			cluster: func(f *clustertest.Fake) {
				for address, status := range f.Statuses {
					status.HasLeader, status.Leads = false, false
					f.Statuses[address] = status
				}
			},
			want: []string{
				"pve2: the host is offline, with cp-2, w-1 on it; etcd of cluster prod has lost its majority; bring pve2 back; only if it is gone " +
					"for good: docs/recovery.md#the-majority-of-etcd-is-lost",
			},
		},
		"a cluster of Proxmox without quorum": {
			change: func(p *request.Placement) { p.NoQuorum = true },
			want: []string{
				"Proxmox: its cluster has no quorum: nothing can be created or changed, its high availability does nothing, and hosts may only " +
					"seem offline: pvecm status on a host shows who is missing",
				member[:len(member)-2],
			},
		},
		"a machine that Proxmox does not have": {
			change: func(p *request.Placement) {
				p.Machines[1] = request.PlacedMachine{Node: "cp-2", VMID: 2001}
				p.Machines[2].HostStatus = "online"
			},
			want: []string{
				"cp-2: Proxmox has no VM 2001, or shows none to the stack's credentials: if it is gone, and its host is not, pulumi up --refresh " +
					"creates it again (docs/recovery.md)",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			q, f := healthyCluster(t)
			f.Down["etcd 127.0.9.2"] = errors.New("no route to host")
			q.req.Placement = &request.Placement{Stack: "home", Machines: []request.PlacedMachine{
				{Node: "cp-1", VMID: 2000, Host: "pve1", HostStatus: "online"},
				{Node: "cp-2", VMID: 2001, Host: "pve2", HostStatus: "offline"},
				{Node: "w-1", VMID: 3000, Host: "pve2", HostStatus: "offline"},
			}}

			if test.change != nil {
				test.change(q.req.Placement)
			}

			if test.cluster != nil {
				test.cluster(f)
			}

			s := q.query(t.Context())
			lines := s.Care.Lines()

			var about []string

			for _, line := range lines {
				for _, want := range test.want {
					if line == want {
						about = append(about, line)
					}
				}

				if len(test.want) == 0 {
					assert.NotContains(t, line, "pve2")
				}
			}

			assert.Equal(t, test.want, about, "%q", lines)
		})
	}
}

func TestHostColumn(t *testing.T) {
	t.Parallel()

	q, _ := healthyCluster(t)
	s := q.query(t.Context())
	assert.NotContains(t, s.Table(0), "HOST", "it was not asked")

	q.req.Placement = &request.Placement{
		NotAsked: []string{"what becomes of machines with high availability: Proxmox answers 403 Permission check failed"},
		Machines: []request.PlacedMachine{
			{Node: "cp-1", VMID: 2000, Host: "pve1", HostStatus: "online"},
			{Node: "cp-2", VMID: 2001, Host: "pve2", HostStatus: "unknown", PlannedHost: "pve1", HA: "started"},
			{Node: "w-1", VMID: 3000},
		},
	}

	s = q.query(t.Context())
	table := s.Table(0)

	for _, want := range []string{
		"  GPUS  HOST\n", "no CNI  -     pve1\n", "no CNI  -     pve2 (unknown, planned pve1, HA started)\n", "no CNI  -     none\n",
		"no CNI  -     -\n", "\nNot asked: what becomes of machines with high availability: Proxmox answers 403 Permission check failed\n",
	} {
		assert.Contains(t, table, want)
	}

	assert.Equal(t, []string{"w-1: Proxmox has no VM 3000, or shows none to the stack's credentials: if it is gone, and its host is not, " +
		"pulumi up --refresh creates it again (docs/recovery.md)"}, s.Care.Lines(), "a machine that was moved needs no care")
}
