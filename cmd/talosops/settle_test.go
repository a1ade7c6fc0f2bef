package main

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"proxmox-talos/internal/host"
)

// deafHost takes connections and says nothing.
func deafHost(t *testing.T) *net.TCPAddr {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	address, ok := listener.Addr().(*net.TCPAddr)
	require.True(t, ok)

	return address
}

// pendingReboot is a host whose files are as wanted, and whose running system is not.
func pendingReboot(f *host.Facts) {
	f.Prep.Pending, f.Prep.Changes, f.Prep.ChangedInBoot = []string{"the kernel runs without iommu=pt"}, []string{host.ChangeReboot}, f.System.BootID
}

// settleOn runs a request against a host and returns facts, progress and error.
func settleOn(t *testing.T, h *sshHost, private string, change func(*settleRequest)) (string, string, error) {
	t.Helper()
	req := &settleRequest{
		PrivateKey: private, Host: question(h), Required: true, Prepared: true, Machines: [][]string{{"0000:01:00"}}, StepTimeout: "5s", DialTimeout: "5s", RebootTimeout: "10s",
	}
	change(req)
	require.NoError(t, req.check())
	req.poll = 20 * time.Millisecond
	login, err := newHostLogin(req.PrivateKey)
	require.NoError(t, err)
	var progress strings.Builder
	printed, err := (&settler{settleRequest: req, login: login, progress: &progress}).settle(t.Context())

	return printed, progress.String(), err
}

func TestSettleWithoutAReboot(t *testing.T) {
	t.Parallel()
	private, public, _ := newKey(t)
	for name, test := range map[string]struct {
		facts  func(*host.Facts)
		change func(*settleRequest)
		says   string // the error; empty = none
	}{
		"a host that is ready": {asIs, func(*settleRequest) {}, ""},
		"a reboot is pending":  {pendingReboot, func(*settleRequest) {}, "pve1 cannot give its GPUs to machines yet:\n  the kernel runs without iommu=pt\nreboot it when it suits, then run this again"},
		"a reboot is pending while machines run": {func(f *host.Facts) {
			pendingReboot(f)
			f.Machines = []host.Guest{{VMID: "101", Status: "running"}}
		}, func(*settleRequest) {}, "reboot it when it suits (101 run on it), then run this again"},
		"a reboot is pending that nothing needs": {pendingReboot, func(r *settleRequest) { r.Required = false }, ""},
		"a reboot that came did not help": {
			func(f *host.Facts) { pendingReboot(f); f.Prep.ChangedInBoot = "boot-1" }, func(*settleRequest) {},
			"the host was rebooted since its last change, and that did not help: was another kernel or boot entry started?",
		},
		"a group that is shared":                        {func(f *host.Facts) { f.Devices[0].Group = "12" }, func(*settleRequest) {}, "shares IOMMU group 12 with 0000:00:17.0 SATA controller: AMD FCH (driver ahci)"},
		"a GPU that is bound by the host, not prepared": {func(f *host.Facts) { f.Devices[1].Driver = "nouveau" }, func(r *settleRequest) { r.Prepared = false }, "0000:01:00.0 on pve1 is bound to nouveau"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := document(t, test.facts)
			h := startHost(t, "pve1", public, prints(said))
			printed, _, err := settleOn(t, h, private, test.change)
			assert.Equal(t, []string{"facts"}, h.asked(), "nothing but questions")
			if test.says != "" {
				require.ErrorContains(t, err, test.says)

				return
			}
			require.NoError(t, err)
			assert.Equal(t, said, printed)
		})
	}
}

func TestSettleReboots(t *testing.T) {
	t.Parallel()
	private, public, _ := newKey(t)
	before, after := document(t, pendingReboot), document(t, func(f *host.Facts) { f.System.BootID = "boot-3" })
	h := startHost(t, "pve1", public, nil)
	h.answer = func(command, _ string) (string, string, int) {
		if !strings.HasPrefix(command, "action=reboot ") {
			return before, "", 0
		}
		h.mutex.Lock()
		defer h.mutex.Unlock()
		h.refuses = true
		time.AfterFunc(200*time.Millisecond, func() {
			h.mutex.Lock()
			defer h.mutex.Unlock()
			h.refuses, h.answer = false, prints(after)
		})

		return "rebooting\n", "", -1 // the host takes the connection down with it
	}

	printed, progress, err := settleOn(t, h, private, func(r *settleRequest) { r.Reboot = true })
	require.NoError(t, err)
	assert.Equal(t, after, printed)
	assert.Contains(t, progress, "pve1 reboots: the kernel runs without iommu=pt\n")
	assert.Contains(t, progress, "pve1 is back, and runs kernel 6.17.2-1-pve\n")
}

func TestSettleRebootsOnlyWhereItMayAndHelps(t *testing.T) {
	t.Parallel()
	private, public, _ := newKey(t)
	for name, test := range map[string]struct {
		facts  func(*host.Facts)
		reboot exchange
		calls  []string
		says   string // progress
		fails  string
	}{
		"nothing is pending":    {asIs, nil, []string{"facts"}, "", ""},
		"machines run":          {pendingReboot, prints("busy 101 102 \n"), []string{"facts", "reboot"}, "pve1 is not rebooted: 101, 102 run on it; shut them down and run this again", ""},
		"a reboot came in vain": {func(f *host.Facts) { pendingReboot(f); f.Prep.ChangedInBoot = "boot-1" }, nil, []string{"facts"}, "pve1 was rebooted since its last change, which did not help", ""},
		"the host refuses":      {pendingReboot, func(string, string) (string, string, int) { return "", "error: qm list failed\n", 1 }, []string{"facts", "reboot"}, "", "pve1 says: qm list failed"},
		"the host does not go":  {pendingReboot, prints("rebooting\n"), nil, "pve1 reboots", "pve1 did not come back within 300ms of its reboot (it still runs): look at its console"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := document(t, test.facts)
			h := startHost(t, "pve1", public, func(command, stdin string) (string, string, int) {
				if strings.HasPrefix(command, "action=reboot ") {
					return test.reboot(command, stdin)
				}

				return said, "", 0
			})
			_, progress, err := settleOn(t, h, private, func(r *settleRequest) { r.Reboot, r.Required, r.RebootTimeout = true, false, "300ms" })
			if test.fails == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.fails)
			}
			assert.Contains(t, progress, test.says)
			if test.calls != nil {
				assert.Equal(t, test.calls, h.asked())
			}
		})
	}
}

func TestSettleAsAVerb(t *testing.T) {
	t.Parallel()
	private, public, _ := newKey(t)
	said := document(t, asIs)
	h := startHost(t, "pve1", public, prints(said))
	stdout, stderr, err := run(t, "settle", &settleRequest{PrivateKey: private, Host: question(h), Required: true, Machines: [][]string{{"0000:01:00"}}}, never)
	require.NoError(t, err)
	assert.Equal(t, said, stdout)
	assert.Empty(t, stderr)

	_, _, err = run(t, "settle", &settleRequest{Host: factsHost{}}, never)
	require.ErrorContains(t, err, "host.name: none is stated")
	require.ErrorContains(t, err, "host.script: none is stated")
}
