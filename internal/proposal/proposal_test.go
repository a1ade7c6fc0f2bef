package proposal_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/goldentest"
	"talos-proxmox/internal/hostfacts"
	"talos-proxmox/internal/preflight"
	"talos-proxmox/internal/proposal"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/stacks"
)

const (
	authority = "0A:1B:2C:3D:4E:5F:60:71:82:93:A4:B5:C6:D7:E8:F9:0A:1B:2C:3D:4E:5F:60:71:82:93:A4:B5:C6:D7:E8:F9"
	hostKey   = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILlByXKFwQc6EoBa6IxHEFoDJoHnTHBqM2c9mLxLUO/U"
	// fingerprint is that of hostKey.
	fingerprint = "SHA256:of-the-key"
)

// inventory returns a cluster of Proxmox VE 9.2 with hosts.
func inventory(hosts ...proposal.Host) *proposal.Inventory {
	return &proposal.Inventory{
		Endpoint: "https://192.0.2.2:8006/", Release: "9.2", Cluster: authority, Hosts: hosts,
	}
}

// host returns a host with a number in 192.0.2.0/24, a datastore for images and one for disks.
func host(number, memoryGiB, cores int, more ...hostfacts.Storage) proposal.Host {
	return proposal.Host{
		Name: fmt.Sprintf("pve%d", number), Online: true, Cores: cores, MemoryMiB: memoryGiB * 1024,
		Address: netip.AddrFrom4([4]byte{192, 0, 2, byte(number + 1)}),
		Storages: append([]hostfacts.Storage{
			storage("local", "dir", "iso,vztmpl,backup,import", 80, false),
		}, more...),
		Bridges: []proposal.Bridge{bridge("vmbr0", fmt.Sprintf("192.0.2.%d/24", number+1), "192.0.2.1")},
		DNS:     []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("203.0.113.53")},
	}
}

func storage(name, kind, content string, freeGiB int64, shared bool) hostfacts.Storage {
	s := hostfacts.Storage{
		Name: name, Type: kind, Content: content, Active: 1, Enabled: 1, Total: 2 * freeGiB << 30, Free: freeGiB << 30,
	}
	if shared {
		s.Shared = 1
	}

	return s
}

func lvm() hostfacts.Storage { return storage("local-lvm", "lvmthin", "images,rootdir", 800, false) }

func bridge(name, cidr, gateway string) proposal.Bridge {
	return proposal.Bridge{Bridge: preflight.Bridge{Name: name, Type: "bridge"}, CIDR: cidr, Gateway: gateway}
}

func with(h proposal.Host, change func(*proposal.Host)) proposal.Host {
	change(&h)

	return h
}

func ada(pci string) proposal.GPU {
	return proposal.GPU{
		PCI: pci, Device: "10de:27b0", Name: "AD104GL [RTX 4000 SFF Ada Generation]", Generation: "ada",
	}
}

func vm(vmid int, host, status string, memoryGiB int64) proxmoxapi.Listed {
	return proxmoxapi.Listed{Type: "qemu", VMID: vmid, Name: "other", Host: host, Status: status, Memory: memoryGiB << 30}
}

// propose proposes a stack without a terminal; every host has the key.
func propose(i *proposal.Inventory, given map[string]string, accepted ...string) (*proposal.Stack, error) {
	return proposal.Propose(i, proposal.Options{
		Stack: "prod", Given: given, AcceptedKeys: accepted,
		FetchKey: func(netip.Addr) (proposal.HostKey, error) {
			return proposal.HostKey{Line: hostKey, Fingerprint: fingerprint}, nil
		},
	})
}

// TestProposedStacks compares the stack files for inventories with golden ones, each of which the program accepts.
func TestProposedStacks(t *testing.T) {
	t.Parallel()

	ceph := storage("ceph", "rbd", "images,rootdir", 3000, true)
	zfs := storage("local-zfs", "zfspool", "images,rootdir", 900, false)

	for name, test := range map[string]struct {
		inventory *proposal.Inventory
		given     map[string]string
		accepted  []string
	}{
		"one small host": {inventory: inventory(host(1, 16, 4, lvm()))},
		"one host without a number": {inventory: inventory(with(host(1, 64, 16, lvm()), func(h *proposal.Host) {
			h.Name = "pve"
		}))},
		"two hosts": {inventory: inventory(host(1, 64, 16, lvm()), host(2, 32, 8, lvm()))},
		"three hosts with Ceph": {inventory: inventory(host(1, 128, 32, lvm(), ceph), host(2, 128, 32, lvm(), ceph),
			host(3, 64, 16, lvm(), ceph))},
		"three hosts too small for workers": {
			inventory: inventory(host(1, 8, 4, lvm()), host(2, 8, 4, lvm()), host(3, 8, 4, lvm())),
		},
		"a host is offline": {inventory: inventory(host(1, 64, 16, lvm()), host(2, 64, 16, lvm()),
			with(host(3, 64, 16, lvm()), func(h *proposal.Host) { h.Online = false }), host(4, 64, 16, lvm()))},
		"one host with a GPU and ZFS": {
			inventory: inventory(with(host(1, 96, 16, zfs), func(h *proposal.Host) { h.GPUs = []proposal.GPU{ada("01:00")} })),
			accepted:  []string{fingerprint},
		},
		"a GPU host among three with a key that nobody accepted": {inventory: inventory(
			host(1, 64, 16, lvm()), host(2, 64, 16, lvm()), with(host(3, 128, 32, lvm()), func(h *proposal.Host) {
				h.GPUs = []proposal.GPU{ada("01:00"), ada("41:00"), {PCI: "61:00", Device: "10de:1b80", User: "VM 105 (games on pve3)"}}
			}),
		)},
		"VMIDs and addresses are taken": {inventory: func() *proposal.Inventory {
			i := inventory(host(1, 64, 16, lvm()))
			i.Machines = []proxmoxapi.Listed{vm(901, "pve1", "stopped", 4), vm(2500, "pve1", "running", 8), vm(12999, "pve1", "running", 4)}
			i.Guests = []preflight.Guest{{
				Listed:    i.Machines[1],
				Addresses: []preflight.GuestAddress{{Address: netip.MustParseAddr("192.0.2.30"), Bridge: "vmbr0"}},
			}}

			return i
		}()},
		"an old Proxmox": {inventory: func() *proposal.Inventory {
			i := inventory(host(1, 64, 16, lvm()))
			i.Release = "8.2"

			return i
		}(), accepted: []string{fingerprint}},
		"a token that may read little": {
			inventory: func() *proposal.Inventory {
				i := inventory(with(host(1, 0, 0, lvm()), func(h *proposal.Host) { h.Address, h.DNS = netip.Addr{}, nil }))
				i.Gaps = []string{"the GPUs of pve1: needs Sys.Audit or Sys.Modify on /"}

				return i
			}(),
		},
		"everything by flags": {
			inventory: inventory(host(1, 64, 16, lvm(), ceph), with(host(2, 64, 16, lvm(), ceph), func(h *proposal.Host) {
				h.Bridges = append(h.Bridges, bridge("vmbr1", "", ""))
				h.GPUs = []proposal.GPU{{PCI: "81:00", Device: "10de:2b85"}}
			})),
			given: map[string]string{
				"hosts": "pve2", "cluster": "edge", "datastore": "local-lvm", "bridge": "vmbr1", "vlan": "20", "cidr": "198.51.100.0/27",
				"gateway": "none", "dns": "default", "addresses": "198.51.100.20-198.51.100.29", "generations": "10de:2b85=blackwell",
			},
			accepted: []string{fingerprint},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			stack, err := propose(test.inventory, test.given, test.accepted...)
			require.NoError(t, err)

			file, err := stack.File()
			require.NoError(t, err)

			path := filepath.Join("testdata", strings.ReplaceAll(name, " ", "_")+".yaml")
			goldentest.Equal(t, path, string(file))

			_, err = stacks.PlanChecked(t.Context(), "prod", file)
			require.NoError(t, err)
		})
	}
}

// TestWhatHasNoDefault names everything that has to be set by its flag, at once.
func TestWhatHasNoDefault(t *testing.T) {
	t.Parallel()

	noNetwork := with(host(1, 64, 16, lvm()), func(h *proposal.Host) { h.Bridges[0].CIDR, h.Bridges[0].Gateway = "", "" })

	for name, test := range map[string]struct {
		inventory *proposal.Inventory
		given     map[string]string
		accepted  []string
		want      []string
	}{
		"a network without a router": {
			inventory: inventory(with(host(1, 64, 16, lvm()), func(h *proposal.Host) { h.Bridges[0].Gateway = "" })),
			want:      []string{"--gateway: is missing: the hosts have no router on the bridge"},
		},
		"no address on the bridge, and a GPU without a name": {
			inventory: inventory(with(noNetwork, func(h *proposal.Host) {
				h.GPUs = []proposal.GPU{{PCI: "01:00", Device: "10de:2b85"}}
			})),
			want: []string{
				"--cidr: is missing", "--gateway: is missing", "--addresses: is missing",
				"--generations: is missing: the name of 10de:2b85 (10de:2b85) does not tell the architecture",
			},
		},
		"no datastore in common": {
			inventory: inventory(host(1, 64, 16, lvm()), host(2, 64, 16, storage("tank", "zfspool", "images", 800, false))),
			want: []string{"--datastore: is missing: no datastore with the content type images is on all of these hosts " +
				"(pve1 has local (iso, vztmpl, backup, import), local-lvm (images, rootdir); pve2 has local (iso, vztmpl, backup, import), " +
				"tank (images)); add one, or name hosts that have one in common with --hosts"},
		},
		"no host is online": {
			inventory: inventory(with(host(1, 64, 16), func(h *proposal.Host) { h.Online = false })),
			want:      []string{"--hosts: is missing"},
		},
		"too little memory": {
			inventory: inventory(host(1, 6, 4, lvm())),
			want:      []string{"--hosts: one of them has too little memory for a control plane of 2048 MiB (pve1: 2048 MiB, 6 GiB less 4 for the host)"},
		},
		"a full datastore": {
			inventory: inventory(host(1, 64, 16, storage("local-lvm", "lvmthin", "images", 60, false))),
			want:      []string{`--datastore: "local-lvm" has 60 GiB free, and half of it does not hold 2 disks of 20 GiB`},
		},
		"an address that nobody says": {
			inventory: inventory(host(1, 64, 16, lvm()), with(host(2, 64, 16, lvm()), func(h *proposal.Host) {
				h.Address, h.Bridges[0].Gateway = netip.Addr{}, ""
			})),
			want: []string{"--host-addresses: is missing: Proxmox does not say the IPv4 address of pve2; set pve2=10.0.0.2"},
		},
		"wrong answers": {
			inventory: inventory(with(host(1, 64, 16, lvm()), func(h *proposal.Host) { h.GPUs = []proposal.GPU{ada("01:00")} })),
			given: map[string]string{
				"datastore": "local-zfs", "bridge": "vmbr9", "cidr": "192.0.2.7/24", "gateway": "here", "dns": "1.1.1.1,one",
				"addresses": "2001:db8::1-2001:db8::9", "vlan": "5000",
			},
			accepted: []string{"SHA256:of-another"},
			want: []string{
				`--datastore: "local-zfs" is not a datastore with the content type images of all hosts, which are local-lvm`,
				`--bridge: "vmbr9" is not a bridge of all hosts, which have vmbr0`, `--cidr: "192.0.2.7/24" is not an IPv4 network`,
				`--gateway: "here" is not an address in the network`, `--dns: "1.1.1.1,one" has "one", which is not an IPv4 address`,
				`--addresses: "2001:db8::1-2001:db8::9" is not a range of addresses`, `--vlan: "5000" is not a VLAN`,
				`--accept-host-key: "SHA256:of-another" is not the key of a host whose shell is needed (pve1 has SHA256:of-the-key)`,
			},
		},
		"addresses that are taken": {
			inventory: inventory(host(1, 64, 16, lvm())), given: map[string]string{"addresses": "192.0.2.1-192.0.2.9"},
			want: []string{`--addresses: "192.0.2.1-192.0.2.9" has 192.0.2.1, which is that of the router`},
		},
		"too few addresses": {
			inventory: inventory(host(1, 64, 16, lvm()), host(2, 64, 16, lvm()), host(3, 64, 16, lvm())),
			given:     map[string]string{"addresses": "192.0.2.10-192.0.2.12"},
			want:      []string{`has 3 addresses, and the cluster needs 7`},
		},
		"a host that there is not": {
			inventory: inventory(host(1, 64, 16, lvm())), given: map[string]string{"hosts": "pve1,pve7"},
			want: []string{`--hosts: "pve1,pve7" names pve7, which is not in the cluster; it has pve1`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			_, err := propose(test.inventory, test.given, test.accepted...)
			require.Error(t, err)

			for _, want := range test.want {
				assert.ErrorContains(t, err, want)
			}

			assert.Len(t, strings.Split(err.Error(), "\n"), len(test.want), err)
		})
	}
}

// TestSummary compares what a terminal shows with a golden file.
func TestSummary(t *testing.T) {
	t.Parallel()

	i := inventory(
		with(host(1, 96, 16, lvm()), func(h *proposal.Host) {
			h.GPUs = []proposal.GPU{ada("01:00"), {PCI: "41:00", Device: "10de:1b80", User: "VM 105 (games on pve1)"}}
		}),
		with(host(2, 64, 16, lvm()), func(h *proposal.Host) { h.Online = false }),
	)
	i.Release, i.Gaps = "8.4", []string{"the name servers of pve1: needs Sys.Audit on /nodes/pve1"}

	stack, err := propose(i, nil)
	require.NoError(t, err)

	text := i.Describe() + "\n" + stack.Summary()
	for _, around := range []proposal.Surroundings{
		{}, {CAFile: "/home/ann/pve-root-ca.pem"}, {Insecure: true}, {Lab: true},
	} {
		text += "\n" + stack.NextSteps(around)
	}

	goldentest.Equal(t, filepath.Join("testdata", "summary.txt"), text)
}

// TestQuestions asks again after a wrong answer, and takes defaults for empty ones. A key is accepted only by a yes.
func TestQuestions(t *testing.T) {
	t.Parallel()

	answers := map[string][]string{"addresses": {"soon", "192.0.2.100-192.0.2.120"}, "cluster": {"lab"}}

	var asked []string

	stack, err := proposal.Propose(
		inventory(with(host(1, 64, 16, lvm()), func(h *proposal.Host) { h.GPUs = []proposal.GPU{ada("01:00")} })),
		proposal.Options{
			Stack: "prod", Given: map[string]string{"bridge": "vmbr0"},
			FetchKey: func(netip.Addr) (proposal.HostKey, error) {
				return proposal.HostKey{Line: hostKey, Fingerprint: fingerprint}, nil
			},
			Confirm: func(string, proposal.HostKey) (bool, error) { return true, nil },
			Ask: func(q proposal.Question) (answer string, _ error) {
				asked = append(asked, q.Flag+q.Problem)

				if list := answers[q.Flag]; len(list) > 0 {
					answer, answers[q.Flag] = list[0], list[1:]
				}

				return answer, nil
			},
		})
	require.NoError(t, err)
	assert.Equal(t, []string{
		"hosts", "cluster", "datastore", "image-datastore", "cidr", "gateway", "dns", "addresses",
		"addressesis not a range of addresses; write it as 10.0.0.10-10.0.0.49",
	}, asked)
	assert.Equal(t, "192.0.2.101", stack.ControlPlanes.FirstAddress.String())
	assert.Equal(t, "lab", stack.Cluster)
	assert.True(t, stack.Hosts[0].Key.Accepted)

	_, err = proposal.Propose(inventory(host(1, 64, 16, lvm())), proposal.Options{
		Stack: "prod", Ask: func(proposal.Question) (string, error) { return "", context.Canceled },
	})
	require.ErrorIs(t, err, context.Canceled)
}

// TestWriteReplacesNothing writes a file once, and leaves nothing else.
func TestWriteReplacesNothing(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()
	path := filepath.Join(folder, "Pulumi.prod.yaml")

	require.NoError(t, proposal.Write(path, []byte("first")))
	require.ErrorIs(t, proposal.Write(path, []byte("second")), os.ErrExist)

	content, err := os.ReadFile(path) //nolint:gosec // the test's own
	require.NoError(t, err)
	assert.Equal(t, "first", string(content))

	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	assert.Len(t, entries, 1)
}
