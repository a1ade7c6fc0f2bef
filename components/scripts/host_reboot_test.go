package scripts

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/spec"
)

// runReboot runs the reboot action for a host of a stack with the clusters one and two.
func (host *fakeHost) runReboot() result {
	host.t.Helper()

	return host.run(ActionReboot, preparedHost(), Parameter{"clusters", "one two"})
}

const rebootLock = "etc/pve/priv/lock/talos-proxmox-reboot"

// pvecmStatus returns the output of pvecm status for a cluster with these votes, of which the host has one.
func pvecmStatus(expected, total, needed int) string {
	return fmt.Sprintf("Cluster information\n-------------------\nName:             lab\n\nVotequorum information\n----------------------\nExpected votes:   %d\n"+
		"Highest expected: %[1]d\nTotal votes:      %d\nQuorum:           %d  \nFlags:            Quorate \n\nMembership information\n----------------------\n"+
		"    Nodeid      Votes Name\n0x00000001          1 10.0.0.2 (local)\n0x00000002          1 10.0.0.3\n", expected, total, needed)
}

func TestRebootWaitsForGuests(t *testing.T) {
	t.Parallel()

	const (
		vms        = "      VMID NAME                 STATUS     MEM(MB)    BOOTDISK(GB) PID\n"
		containers = "VMID       Status     Lock         Name\n"
	)

	runCases(t, map[string]rebootCase{
		"nothing there": {nil, nil},
		"stopped machines": {map[string]string{
			"qm list": vms + "       101 db                   stopped    4096              32.00 0", "pct list": containers + "200        stopped                 ct",
		}, nil},
		"a machine runs": {
			map[string]string{"qm list": vms + "       101 db                   running    4096              32.00 4711"}, []string{"busy 101 \n"},
		},
		"a container runs": {
			map[string]string{"pct list": containers + "200        running                 ct"}, []string{"busy 200 \n"},
		},
		"two run, one is off": {map[string]string{
			"qm list": vms + "       101 a                    running    4096              32.00 1\n       102 b                    stopped    1 1 0\n       103 c                    running    1 1 2",
		}, []string{"busy 101 103 \n"}},
		"a stopped machine named running": {
			map[string]string{"qm list": vms + "       101 running              stopped    4096              32.00 0"}, nil,
		},
	})
}

// rebootCase are the outputs of Proxmox' commands before a reboot, and the reasons to wait.
type rebootCase struct {
	outputs   map[string]string
	wantWaits []string // nil = the host reboots
}

func (c rebootCase) check(t *testing.T) {
	t.Helper()

	host := newFakeHost(t, hostSpec{})
	for call, output := range c.outputs {
		host.setOutput(call, output+"\n")
	}

	r := host.runReboot()
	require.NoError(t, r.err, r.stderr)

	if c.wantWaits == nil {
		assert.Equal(t, "rebooting\n", r.stdout)
		assert.Equal(t, []string{"systemctl reboot"}, host.changingCalls())
		assert.DirExists(t, host.path(rebootLock), "held until the host is down; Proxmox releases it")

		return
	}

	assert.Equal(t, len(c.wantWaits), strings.Count(r.stdout, "\n"), r.stdout)

	for _, reason := range c.wantWaits {
		assert.Contains(t, r.stdout, reason)
	}

	assert.NotContains(t, r.stdout, "rebooting")
	assert.Empty(t, host.changingCalls())
	assert.NoDirExists(t, host.path(rebootLock))
}

func TestRebootWaitsForQuorumAndHA(t *testing.T) {
	t.Parallel()

	const qdevice = "0x00000001          1   A,V,NMW 10.0.0.2 (local)"

	runCases(t, map[string]rebootCase{
		"a host without a cluster": {nil, nil},
		"three of three":           {map[string]string{"pvecm status": pvecmStatus(3, 3, 2)}, nil},
		"two of three": {
			map[string]string{"pvecm status": pvecmStatus(3, 2, 2)},
			[]string{"without it, the Proxmox cluster has 1 of the 2 votes of a quorum"},
		},
		"four of five": {map[string]string{"pvecm status": pvecmStatus(5, 4, 3)}, nil},
		"three of five": {
			map[string]string{"pvecm status": pvecmStatus(5, 3, 3)},
			[]string{"without it, the Proxmox cluster has 2 of the 3 votes of a quorum"},
		},
		"two of two with a QDevice": {
			map[string]string{
				"pvecm status": strings.Replace(pvecmStatus(3, 3, 2), "0x00000001          1 10.0.0.2 (local)", qdevice, 1),
			},
			nil,
		},
		"a host that has three votes": {
			map[string]string{
				"pvecm status": strings.Replace(pvecmStatus(7, 6, 4), "1          1 10.0.0.2", "1          3 10.0.0.2", 1),
			},
			[]string{"has 3 of the 4 votes"},
		},
		"two of three, and HA would reset": {
			map[string]string{
				"pvecm status": pvecmStatus(3, 2, 2),
				"ha-manager status": "quorum OK\nmaster pve2 (active, Sat Nov 21 23:00:00 2026)\n" +
					"lrm pve1 (idle, watchdog standby, Sat Nov 21 23:00:00 2026)\n" +
					"lrm pve2 (active, watchdog active, Sat Nov 21 23:00:00 2026)\nlrm pve3 (active, Sat Nov 21 23:00:00 2026)\n" +
					"service vm:100 (pve2, started)\n",
			},
			[]string{"has 1 of the 2 votes of a quorum, and HA is active, which resets pve2, pve3 without a quorum"},
		},
		"HA is active and idle": {
			map[string]string{
				"pvecm status": pvecmStatus(3, 3, 2),
				"ha-manager status": "quorum OK\nlrm pve2 (active, watchdog active, Sat)\nservice vm:100 (pve2, started)\n" +
					"service ct:101 (pve3, stopped)\n",
			},
			nil,
		},
		"HA moves and recovers": {
			map[string]string{
				"ha-manager status": "quorum OK\nservice vm:100 (pve2, migrate)\nservice vm:101 (pve3, started)\n" +
					"service vm:102 (pve3, recovery)\n",
			},
			[]string{"HA works on vm:100 (pve2, migrate)", "HA works on vm:102 (pve3, recovery)"},
		},
	})
}

// TestRebootWaitsForTasks has tasks of the host, and migrations between others.
func TestRebootWaitsForTasks(t *testing.T) {
	t.Parallel()

	const (
		tasks   = "pvesh get /nodes/pve1/tasks --source active --output-format json"
		cluster = "pvesh get /cluster/tasks --output-format json"
	)

	upid := func(node, kind, id string) string {
		return `"upid":"UPID:` + node + `:000004D2:0000ABCD:673F0000:` + kind + `:` + id + `:root@pam:"`
	}

	list := func(tasks ...string) string { return "[{" + strings.Join(tasks, "},{") + "}]" }

	runCases(t, map[string]rebootCase{
		"a backup runs": {
			map[string]string{
				tasks: list(`"id":"100","node":"pve1","pid":1,"status":"RUNNING","type":"vzdump",` +
					upid("pve1", "vzdump", "100") + `,"user":"root@pam"`),
			},
			[]string{"the task vzdump 100 runs on it"},
		},
		"a backup of all runs": {
			map[string]string{tasks: list(upid("pve1", "vzdump", ""))}, []string{"the task vzdump runs on it"},
		},
		"two tasks run": {
			map[string]string{
				tasks: list(upid("pve1", "qmigrate", "100"), upid("pve1", "vncshell", ""), upid("pve1", "imgcopy", "")),
			},
			[]string{"the task qmigrate 100 runs on it", "the task imgcopy runs on it"},
		},
		"consoles are open": {
			map[string]string{
				tasks: list(upid("pve1", "vncproxy", "100"), upid("pve1", "vncshell", ""), upid("pve1", "spiceproxy", "100")),
			},
			nil,
		},
		"machines migrate elsewhere": {
			map[string]string{cluster: list(
				`"endtime":"1732230000","status":"OK",`+upid("pve2", "qmigrate", "99"),
				`"node":"pve2",`+upid("pve2", "qmigrate", "101"),
				upid("pve3", "vzmigrate", "102"), upid("pve3", "vzdump", "103"),
			)},
			[]string{"the task qmigrate 101 runs on pve2", "the task vzmigrate 102 runs on pve3"},
		},
	})
}

// TestRebootWaitsForMachinesOfTheStack has machines of the stack's clusters that are down on other hosts.
func TestRebootWaitsForMachinesOfTheStack(t *testing.T) {
	t.Parallel()

	const resources = "pvesh get /cluster/resources --type vm --output-format json"

	vm := func(id int, name, node, status, tags string) string {
		return fmt.Sprintf(
			`{"id":"qemu/%d","maxmem":1,"name":%q,"node":%q,"status":%q,"tags":%q,"template":0,"type":"qemu","vmid":%[1]d}`, id,
			name, node, status, tags,
		)
	}
	runCases(t, map[string]rebootCase{
		"machines of the stack are down elsewhere": {
			map[string]string{resources: "[" + strings.Join([]string{
				vm(2000, "one-cp-1", "pve2", "stopped", "cluster-one;controlplane;talos"),
				vm(2001, "one-cp-2", "pve3", "running", "cluster-one;controlplane;talos"),
				vm(3000, "two-gpu-1", "pve3", "paused", "cluster-two;talos;worker"),
				vm(3001, "other-1", "pve3", "stopped", "cluster-onemore;talos"),
				vm(3002, "db", "pve2", "stopped", ""),
				`{"node":"pve3","status":"unknown","tags":"cluster-two","type":"qemu","vmid":3003}`,
				strings.Replace(vm(900, "one-template", "pve2", "stopped", "cluster-one"), `"template":0`, `"template":1`, 1),
			}, ",") + "]"},
			[]string{
				"the machine one-cp-1 (VM 2000) on pve2 is stopped", "the machine two-gpu-1 (VM 3000) on pve3 is paused",
				"the machine (VM 3003) on pve3 is unknown",
			},
		},
		"machines of the stack are down on this host": {
			map[string]string{resources: "[" + vm(2000, "one-cp-1", "pve1", "stopped", "cluster-one;talos") + "]"}, nil,
		},
	})
}

// TestRebootWaitsForCeph has a host with two OSDs, a removed one, and a monitor.
func TestRebootWaitsForCeph(t *testing.T) {
	t.Parallel()

	const busy = `echo "Error EBUSY: unsafe to stop osd(s) at this time (23 PGs are or would become offline)" >&2; exit 16`

	for name, test := range map[string]struct {
		osd, mon      string // Ceph's answers, as shell commands
		want, wantErr string
	}{
		"Ceph can spare it": {"exit 0", "exit 0", "rebooting\n", ""},
		"data would be unavailable": {
			busy, "exit 0", "wait Ceph needs osd 3 4 of it: unsafe to stop osd(s) at this time (23 PGs are or would become offline)\n", "",
		},
		"monitors would have no majority": {
			"exit 0", `echo "Error EBUSY: not enough monitors would be available (pve2) after stopping mons [pve1]" >&2; exit 16`,
			"wait Ceph needs mon pve1 of it: not enough monitors would be available (pve2) after stopping mons [pve1]\n", "",
		},
		"no answer": {
			"exit 124", "exit 0", "", "ceph osd ok-to-stop 3 4 failed; whether Ceph can spare this host is not known, and it is not rebooted: no answer",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			host := newFakeHost(t, hostSpec{})
			for _, file := range []string{"osd/ceph-3/keyring", "osd/ceph-4/keyring", "osd/ceph-5/fsid", "mon/ceph-pve1/keyring"} {
				host.write("var/lib/ceph/"+file, "")
			}

			ceph := "#!/bin/sh\necho '{\"ok_to_stop\": true}'\n" +
				"case \"$*\" in\n'osd ok-to-stop 3 4') " + test.osd + " ;;\n'mon ok-to-stop pve1') " + test.mon +
				" ;;\n*) echo \"unexpected call $*\" >&2; exit 2 ;;\nesac\n"
			host.addProgram("ceph", ceph)

			r := host.runReboot()
			assert.Equal(t, test.wantErr != "", r.err != nil, r.stderr)
			assert.Contains(t, r.stderr, test.wantErr)
			assert.Equal(t, test.want, r.stdout)
			assert.Equal(t, test.want == "rebooting\n", len(host.changingCalls()) == 1)
		})
	}
}

// TestRebootFailsIfQuorumIsImpossible has a complete cluster that loses its quorum without any host.
func TestRebootFailsIfQuorumIsImpossible(t *testing.T) {
	t.Parallel()
	host := newFakeHost(t, hostSpec{})
	host.setOutput("pvecm status", pvecmStatus(2, 2, 2))
	r := host.runReboot()
	require.Error(t, r.err)
	assert.Contains(t, r.stderr, "error: the Proxmox cluster cannot spare this host: without it, 1 of the 2 votes of a quorum are left; reboot it yourself when that suits, or add a QDevice")
	assert.Empty(t, host.changingCalls())
}

// TestRebootWaitsForOtherHosts has another host of the cluster that is rebooting.
func TestRebootWaitsForOtherHosts(t *testing.T) {
	t.Parallel()
	host := newFakeHost(t, hostSpec{})
	require.NoError(t, os.MkdirAll(host.path(rebootLock), 0o750))
	r := host.runReboot()
	require.NoError(t, r.err, r.stderr)
	assert.Equal(t, "wait a host of this Proxmox cluster was told to reboot less than two minutes ago\n", r.stdout)
	assert.Empty(t, host.changingCalls())
	lock, err := os.Stat(host.path(rebootLock))
	require.NoError(t, err)
	assert.Zero(t, lock.ModTime().Unix(), "its release is requested in Proxmox' way")
}

func TestRebootFailsIfAQueryFails(t *testing.T) {
	t.Parallel()

	for command, says := range map[string]string{
		"qm":    "qm list failed; whether machines run is not known, and the host is not rebooted",
		"pct":   "whether containers run is not known",
		"pvesh": "whether tasks run is not known", "ha-manager": "what HA does is not known",
		"pvecm": "pvecm status names no votes; whether the Proxmox cluster can spare this host is not known",
	} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			host := newFakeHost(t, hostSpec{})
			host.breakCommand(command)
			r := host.runReboot()
			require.Error(t, r.err)
			assert.Contains(t, r.stderr, says)
			assert.Empty(t, host.changingCalls())
			assert.NoDirExists(t, host.path(rebootLock))
		})
	}

	t.Run("and a reboot that fails", func(t *testing.T) {
		t.Parallel()
		host := newFakeHost(t, hostSpec{})
		host.breakCommand("systemctl")
		r := host.runReboot()
		require.Error(t, r.err)
		assert.NoDirExists(t, host.path(rebootLock))
	})
}

// TestHostScriptRefusesOtherHosts has another host at the address.
func TestHostScriptRefusesOtherHosts(t *testing.T) {
	t.Parallel()

	everything := preparedHost(withGPU, func(h *spec.Host) { h.Prep.Repositories = "no-subscription" })

	for name, test := range map[string]struct{ own, node, says string }{
		"another host": {
			"pve2", "pve2",
			"this is not pve1: the host's own name is pve2, and Proxmox VE knows it as pve2; nothing was changed on it",
		},
		"a host that was renamed": {
			"pve1", "old", "this is not pve1: the host's own name is pve1, and Proxmox VE knows it as old",
		},
		"a name of another domain": {
			"pve2.example.org", "pve1", "this is not pve1: the host's own name is pve2, and Proxmox VE knows it as pve1",
		},
		"no node": {"pve1", "", "this host, pve1, is no node of Proxmox VE now"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := newFakeHost(t, hostSpec{gpu: true})
			host.apply(everything)
			prepared, calls := host.snapshot(true), host.changingCalls()
			host.setName(test.own, test.node)
			delete(prepared, "/etc/pve")
			delete(prepared, "/etc/pve/local")

			for _, action := range []string{ActionApply, ActionRestore, ActionReboot} {
				r := host.run(action, preparedHost())
				require.Error(t, r.err, action)
				assert.Contains(t, r.stderr, test.says, action)
				assert.Empty(t, r.stdout, action)
			}

			now := host.snapshot(true)
			for file, was := range prepared {
				assert.Equal(t, was, now[file], file)
			}

			assert.Equal(t, calls, host.changingCalls())
		})
	}
}
