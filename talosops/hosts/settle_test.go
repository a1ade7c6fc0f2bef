package hosts

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/scripts"
	"talos-proxmox/internal/goldentest"
	"talos-proxmox/internal/hostfacts"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/verbtest"
)

// pendingReboot makes a host need a reboot: its files are as wanted, its running system is not.
func pendingReboot(f *hostfacts.Facts) {
	f.Prep.Pending, f.Prep.Changes, f.Prep.ChangedInBoot = []string{
		"the kernel runs without iommu=pt",
	}, []string{hostfacts.ChangeReboot}, f.System.BootID
}

// reply is a host's response to an action of the host script; took is its duration, unless ctx ends it.
type reply struct {
	printed string
	err     error
	took    time.Duration
}

// scriptedHost answers each action with the next of its replies, and repeats the last one.
type scriptedHost struct {
	replies map[string][]reply
	calls   []string
}

func (h *scriptedHost) run(ctx context.Context, action string) (string, error) {
	h.calls = append(h.calls, action)

	list := h.replies[action]
	if len(list) > 1 {
		h.replies[action] = list[1:]
	}

	if err := checks.Pause(ctx, list[0].took); err != nil {
		return "", fmt.Errorf("pve1 did not answer within 2m0s: %w", err)
	}

	return list[0].printed, list[0].err
}

// settleOn runs a request against a host, and returns facts, progress and error. Call it in a synctest bubble.
func settleOn(t *testing.T, h *scriptedHost, change func(*settleRequest)) (string, string, error) {
	t.Helper()

	req := &settleRequest{Settle: request.Settle{
		Host: request.Host{
			Shell: request.Shell{Name: "pve1", Address: netip.MustParseAddr("10.0.0.2"), AcceptAnyHostKey: true}, Parameters: "host='pve1'\n",
		},
		Required: true, Prepared: true, Machines: [][]string{{"0000:01:00"}},
	}}
	change(req)
	require.Empty(t, req.Problems())

	var progress strings.Builder

	printed, err := (&settler{settleRequest: req, run: h.run, progress: &progress}).settle(t.Context())

	return printed, progress.String(), err
}

func rebooting(r *settleRequest) { r.Reboot, r.Required = true, false }

func TestSettleWithoutAReboot(t *testing.T) {
	t.Parallel()

	golden := goldentest.NewCases(t)

	for name, test := range map[string]struct {
		facts  func(*hostfacts.Facts)
		change func(*settleRequest)
	}{
		"a host that is ready": {facts: unchanged, change: func(*settleRequest) {}},
		"another host": {
			facts:  func(f *hostfacts.Facts) { f.System.Hostname, f.System.Node = "pve2", "pve2" },
			change: rebooting,
		},
		"a reboot is pending": {facts: pendingReboot, change: func(*settleRequest) {}},
		"a reboot is pending while machines run": {
			facts: func(f *hostfacts.Facts) {
				pendingReboot(f)
				f.Machines = []hostfacts.Guest{{VMID: "101", Status: "running"}}
			},
			change: func(*settleRequest) {},
		},
		"a reboot is pending that nothing needs": {
			facts: pendingReboot, change: func(r *settleRequest) { r.Required = false },
		},
		"a reboot that came did not help": {
			facts:  func(f *hostfacts.Facts) { pendingReboot(f); f.Prep.ChangedInBoot = "boot-1" },
			change: func(*settleRequest) {},
		},
		"a group that is shared": {
			facts: func(f *hostfacts.Facts) { f.Devices[0].Group = "12" }, change: func(*settleRequest) {},
		},
		"a GPU that is bound by the host, not prepared": {
			facts:  func(f *hostfacts.Facts) { f.Devices[1].Driver = "nouveau" },
			change: func(r *settleRequest) { r.Prepared = false },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			facts := document(t, test.facts)
			h := &scriptedHost{replies: map[string][]reply{"facts": {{printed: facts}}}}
			printed, _, err := settleOn(t, h, test.change)
			assert.Equal(t, []string{"facts"}, h.calls, "nothing but questions")
			golden.Equal(t, name, fmt.Sprintf("tells facts: %t", printed == facts), err)
		})
	}
}

// TestSettleReboots: the host drops the connection, is down, starts, and joins its Proxmox cluster a little later.
func TestSettleReboots(t *testing.T) {
	t.Parallel()
	before := document(t, pendingReboot)
	alone := document(t, func(f *hostfacts.Facts) { f.System.BootID, f.System.Quorate = "boot-3", false })
	after := document(t, func(f *hostfacts.Facts) { f.System.BootID = "boot-3" })
	synctest.Test(t, func(t *testing.T) {
		h := &scriptedHost{replies: map[string][]reply{
			"facts": {
				{printed: before},
				{printed: before},
				{err: errors.New("pve1 does not answer"), took: 3 * time.Minute},
				{printed: alone},
				{printed: after},
			},
			"reboot": {{printed: "rebooting\n", err: fmt.Errorf("pve1: %w", errConnectionLost)}},
		}}
		began := time.Now()
		printed, progress, err := settleOn(t, h, func(r *settleRequest) { r.Reboot = true })
		require.NoError(t, err)
		assert.Equal(t, after, printed)
		assert.Equal(
			t, "pve1 reboots: the kernel runs without iommu=pt\npve1 is back, and runs kernel 6.17.2-1-pve\n", progress,
		)
		assert.Equal(t, 3*time.Minute+3*rebootPoll, time.Since(began))
	})
}

func TestSettleRebootsOnlyIfAllowedAndUseful(t *testing.T) {
	t.Parallel()

	golden := goldentest.NewCases(t)

	for name, test := range map[string]struct {
		facts  func(*hostfacts.Facts)
		reboot reply
	}{
		"nothing is pending": {facts: unchanged, reboot: reply{}},
		"machines run":       {facts: pendingReboot, reboot: reply{printed: "busy 101 102 \n"}},
		"a reboot came in vain": {
			facts: func(f *hostfacts.Facts) { pendingReboot(f); f.Prep.ChangedInBoot = "boot-1" }, reboot: reply{},
		},
		"the host refuses": {facts: pendingReboot, reboot: reply{err: errors.New("pve1 says: qm list failed")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &scriptedHost{
				replies: map[string][]reply{"facts": {{printed: document(t, test.facts)}}, "reboot": {test.reboot}},
			}

			_, progress, err := settleOn(t, h, rebooting)
			golden.Equal(t, name, h.calls, progress, err)
		})
	}
}

// TestAHostThatDoesNotComeBack: the error names the last known state, however the last query ended.
func TestAHostThatDoesNotComeBack(t *testing.T) {
	t.Parallel()

	golden := goldentest.NewCases(t)
	before := document(t, pendingReboot)

	alone := document(t, func(f *hostfacts.Facts) { f.System.BootID, f.System.Quorate = "boot-3", false })
	for name, facts := range map[string][]reply{
		"it does not go":                                         {{printed: before}},
		"it does not go and is slow to say so":                   {{printed: before, took: 7 * time.Second}},
		"it does not go, and the time is over while it is asked": {{printed: before}, {took: time.Hour}},
		"it is gone":                {{err: errors.New("pve1 does not answer"), took: 15 * time.Second}},
		"it is gone for a moment":   {{err: errors.New("pve1 does not answer")}, {printed: before}},
		"it hangs":                  {{took: time.Hour}},
		"its cluster has no quorum": {{printed: alone}},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			h := &scriptedHost{
				replies: map[string][]reply{
					"facts": append([]reply{{printed: before}}, facts...), "reboot": {{printed: "rebooting\n"}},
				},
			}
			began := time.Now()
			_, progress, err := settleOn(t, h, rebooting)
			golden.Equal(t, name, progress, err)
			assert.Equal(t, 15*time.Minute, time.Since(began))
		})
	}
}

// TestSettleWaitsForItsTurn: each reason to wait is printed, and one that lasts is printed again every minute.
func TestSettleWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	before, after := document(t, pendingReboot), document(t, func(f *hostfacts.Facts) { f.System.BootID = "boot-3" })
	backup := reply{printed: "wait the task vzdump 100 runs on it\n"}

	verbtest.InBubble(t, "and reboots", func(t *testing.T) {
		replies := []reply{
			{printed: "wait the task qmigrate 101 runs on pve2\nwait the machine one-cp-1 (VM 2000) on pve2 is stopped\n"},
		}
		for range 14 {
			replies = append(replies, backup)
		}

		h := &scriptedHost{
			replies: map[string][]reply{
				"facts": {{printed: before}, {printed: after}}, "reboot": append(replies, reply{printed: "rebooting\n"}),
			},
		}
		began := time.Now()
		printed, progress, err := settleOn(t, h, rebooting)
		require.NoError(t, err)
		assert.Equal(t, after, printed)
		assert.Equal(t, "pve1 waits to be rebooted: the task qmigrate 101 runs on pve2; the machine one-cp-1 (VM 2000) on pve2 is stopped\n"+
			"pve1 waits to be rebooted: the task vzdump 100 runs on it\n"+
			"pve1 waits to be rebooted: the task vzdump 100 runs on it\n"+
			"pve1 reboots: the kernel runs without iommu=pt\npve1 is back, and runs kernel 6.17.2-1-pve\n", progress)
		assert.Equal(t, 15*rebootPoll, time.Since(began))
	})
	verbtest.InBubble(t, "and gives up", func(t *testing.T) {
		h := &scriptedHost{replies: map[string][]reply{"facts": {{printed: before}}, "reboot": {backup}}}
		began := time.Now()
		_, _, err := settleOn(t, h, func(r *settleRequest) { rebooting(r); r.WaitTimeout = "4m" })
		require.EqualError(t, err, "pve1 was not rebooted, although its preparation needs it; for 4m0s this was in the way: the task vzdump 100 runs on it: "+
			"run this again when it is over, or reboot the host yourself")
		assert.Equal(t, 4*time.Minute, time.Since(began))
	})
	verbtest.InBubble(t, "and machines are started meanwhile", func(t *testing.T) {
		h := &scriptedHost{
			replies: map[string][]reply{"facts": {{printed: before}}, "reboot": {backup, {printed: "busy 101 \n"}}},
		}
		_, progress, err := settleOn(t, h, rebooting)
		require.NoError(t, err)
		assert.Contains(t, progress, "pve1 is not rebooted: 101 run on it")
	})
	verbtest.InBubble(t, "and is stopped", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 62*time.Second)
		defer cancel()

		req := &settleRequest{
			Settle: request.Settle{
				Host:   request.Host{Shell: request.Shell{Name: "pve1", Address: netip.MustParseAddr("10.0.0.2"), AcceptAnyHostKey: true}, Parameters: "host='pve1'\n"},
				Reboot: true,
			},
		}
		require.Empty(t, req.Problems())

		h := &scriptedHost{replies: map[string][]reply{"facts": {{printed: before}}, "reboot": {backup}}}
		_, err := (&settler{settleRequest: req, run: h.run, progress: &strings.Builder{}}).settle(ctx)
		require.EqualError(t, err, "pve1 was not rebooted: interrupted while it waited: the task vzdump 100 runs on it")
	})
}

// TestSettleOverSSH goes through SSH, up to a host that drops the connection as it reboots.
func TestSettleOverSSH(t *testing.T) {
	t.Parallel()
	private, public, _ := newKey(t)
	facts := document(t, unchanged)
	h := startHost(t, "pve1", public, prints(facts))
	stdout, stderr, err := runHost(t, "settle", request.Settle{
		PrivateKey: private, Host: hostRequest(h), Required: true, Machines: [][]string{{"0000:01:00"}},
	})
	require.NoError(t, err)
	assert.Equal(t, facts, stdout)
	assert.Empty(t, stderr)

	before := document(t, pendingReboot)
	h.answer = func(command, stdin string) (string, string, int) {
		assert.Equal(t, scripts.HostScript("host='pve1'\n"), stdin)

		if !strings.HasPrefix(command, "action=reboot ") {
			return before, "", 0
		}

		h.mutex.Lock()
		defer h.mutex.Unlock()

		h.answer = prints(document(t, func(f *hostfacts.Facts) { f.System.BootID = "boot-3" }))

		return "rebooting\n", "", -1
	}
	_, stderr, err = runHost(t, "settle", request.Settle{PrivateKey: private, Host: hostRequest(h), Reboot: true})
	require.NoError(t, err)
	assert.Equal(t, "pve1 reboots: the kernel runs without iommu=pt\npve1 is back, and runs kernel 6.17.2-1-pve\n", stderr)
	assert.Equal(t, []string{"facts", "facts", "reboot", "facts"}, h.actions())
}
