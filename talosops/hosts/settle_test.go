package hosts

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/hostfacts"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/verbtest"
)

// pendingReboot is a host whose files are as wanted, and whose running system is not.
func pendingReboot(f *hostfacts.Facts) {
	f.Prep.Pending, f.Prep.Changes, f.Prep.ChangedInBoot = []string{
		"the kernel runs without iommu=pt",
	}, []string{hostfacts.ChangeReboot}, f.System.BootID
}

// reply is what a host does with an action of the host script; what took is how long it thinks, unless it is given up.
type reply struct {
	printed string
	err     error
	took    time.Duration
}

// scriptedHost answers each action with the next of its replies, and with the last of them forever.
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

// settleOn runs a request against a host, and returns facts, progress and error. Call it in a bubble of synctest.
func settleOn(t *testing.T, h *scriptedHost, change func(*settleRequest)) (string, string, error) {
	t.Helper()

	req := &settleRequest{Settle: request.Settle{
		Host: request.Host{
			Shell: request.Shell{Name: "pve1", Address: "10.0.0.2", AcceptAnyHostKey: true}, Script: "the-script\n",
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

	for name, test := range map[string]struct {
		facts  func(*hostfacts.Facts)
		change func(*settleRequest)
		says   string // the error; empty = none
	}{
		"a host that is ready": {facts: asIs, change: func(*settleRequest) {}},
		"another host": {
			facts:  func(f *hostfacts.Facts) { f.System.Hostname, f.System.Node = "pve2", "pve2" },
			change: rebooting,
			says:   "pve1.address: 10.0.0.2 is not pve1: the own name of the host that answers there is pve2, and Proxmox VE knows it as pve2",
		},
		"a reboot is pending": {
			facts:  pendingReboot,
			change: func(*settleRequest) {},
			says:   "pve1 cannot give its GPUs to machines yet:\n  the kernel runs without iommu=pt\nreboot it when it suits, then run this again",
		},
		"a reboot is pending while machines run": {
			facts: func(f *hostfacts.Facts) {
				pendingReboot(f)
				f.Machines = []hostfacts.Guest{{VMID: "101", Status: "running"}}
			},
			change: func(*settleRequest) {},
			says:   "reboot it when it suits (101 run on it), then run this again",
		},
		"a reboot is pending that nothing needs": {
			facts:  pendingReboot,
			change: func(r *settleRequest) { r.Required = false },
		},
		"a reboot that came did not help": {
			facts:  func(f *hostfacts.Facts) { pendingReboot(f); f.Prep.ChangedInBoot = "boot-1" },
			change: func(*settleRequest) {},
			says:   "the host was rebooted since its last change, and that did not help: was another kernel or boot entry started?",
		},
		"a group that is shared": {
			facts:  func(f *hostfacts.Facts) { f.Devices[0].Group = "12" },
			change: func(*settleRequest) {},
			says:   "shares IOMMU group 12 with 0000:00:17.0 SATA controller: AMD FCH (driver ahci)",
		},
		"a GPU that is bound by the host, not prepared": {
			facts:  func(f *hostfacts.Facts) { f.Devices[1].Driver = "nouveau" },
			change: func(r *settleRequest) { r.Prepared = false },
			says:   "0000:01:00.0 on pve1 is bound to nouveau",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := document(t, test.facts)
			h := &scriptedHost{replies: map[string][]reply{"facts": {{printed: said}}}}
			printed, _, err := settleOn(t, h, test.change)
			assert.Equal(t, []string{"facts"}, h.calls, "nothing but questions")

			if test.says != "" {
				require.ErrorContains(t, err, test.says)

				return
			}

			require.NoError(t, err)
			assert.Equal(t, said, printed)
		})
	}
}

// TestSettleReboots has a host that breaks the connection off as it goes down, is away, starts, and joins its Proxmox
// cluster a little later.
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

func TestSettleRebootsOnlyWhereItMayAndHelps(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		facts  func(*hostfacts.Facts)
		reboot reply
		calls  []string
		says   string // progress
		fails  string
	}{
		"nothing is pending": {facts: asIs, reboot: reply{}, calls: []string{"facts"}},
		"machines run": {
			facts:  pendingReboot,
			reboot: reply{printed: "busy 101 102 \n"},
			calls:  []string{"facts", "reboot"},
			says:   "pve1 is not rebooted: 101, 102 run on it; shut them down and run this again",
		},
		"a reboot came in vain": {
			facts:  func(f *hostfacts.Facts) { pendingReboot(f); f.Prep.ChangedInBoot = "boot-1" },
			reboot: reply{},
			calls:  []string{"facts"},
			says:   "pve1 was rebooted since its last change, which did not help",
		},
		"the host refuses": {
			facts:  pendingReboot,
			reboot: reply{err: errors.New("pve1 says: qm list failed")},
			calls:  []string{"facts", "reboot"},
			fails:  "pve1 says: qm list failed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &scriptedHost{
				replies: map[string][]reply{"facts": {{printed: document(t, test.facts)}}, "reboot": {test.reboot}},
			}

			_, progress, err := settleOn(t, h, rebooting)
			verbtest.RequireError(t, err, test.fails)

			assert.Contains(t, progress, test.says)
			assert.Equal(t, test.calls, h.calls)
		})
	}
}

// TestAHostThatDoesNotComeBack says what was last seen of it, however the last question ended.
func TestAHostThatDoesNotComeBack(t *testing.T) {
	t.Parallel()
	before := document(t, pendingReboot)

	alone := document(t, func(f *hostfacts.Facts) { f.System.BootID, f.System.Quorate = "boot-3", false })
	for name, test := range map[string]struct {
		facts []reply // after the first
		says  string
	}{
		"it does not go": {[]reply{{printed: before}}, "it still runs"},
		"it does not go and is slow to say so": {
			[]reply{{printed: before, took: 7 * time.Second}}, "it still runs",
		},
		"it does not go, and the time is over while it is asked": {
			[]reply{{printed: before}, {took: time.Hour}}, "it still runs",
		},
		"it is gone": {
			[]reply{{err: errors.New("pve1 does not answer"), took: 15 * time.Second}}, "pve1 does not answer",
		},
		"it is gone for a moment":   {[]reply{{err: errors.New("pve1 does not answer")}, {printed: before}}, "it still runs"},
		"it hangs":                  {[]reply{{took: time.Hour}}, "it gave no answer"},
		"its cluster has no quorum": {[]reply{{printed: alone}}, "it runs again, and its Proxmox cluster has no quorum"},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			h := &scriptedHost{
				replies: map[string][]reply{
					"facts": append([]reply{{printed: before}}, test.facts...), "reboot": {{printed: "rebooting\n"}},
				},
			}
			began := time.Now()
			_, progress, err := settleOn(t, h, rebooting)
			require.EqualError(t, err, "pve1 did not come back within 15m0s of its reboot ("+test.says+"): look at its console")
			assert.Equal(t, "pve1 reboots: the kernel runs without iommu=pt\n", progress)
			assert.Equal(t, 15*time.Minute, time.Since(began))
		})
	}
}

// TestSettleWaitsForItsTurn has a host that may not reboot at once: each reason is told, and one that lasts is told
// again every minute.
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
				Host:   request.Host{Shell: request.Shell{Name: "pve1", Address: "10.0.0.2", AcceptAnyHostKey: true}, Script: "x"},
				Reboot: true,
			},
		}
		require.Empty(t, req.Problems())

		h := &scriptedHost{replies: map[string][]reply{"facts": {{printed: before}}, "reboot": {backup}}}
		_, err := (&settler{settleRequest: req, run: h.run, progress: &strings.Builder{}}).settle(ctx)
		require.EqualError(t, err, "pve1 was not rebooted: stopped while it waited: the task vzdump 100 runs on it")
	})
}

// TestSettleAsAVerb goes through SSH, up to a host that breaks the connection off as it reboots.
func TestSettleAsAVerb(t *testing.T) {
	t.Parallel()
	private, public, _ := newKey(t)
	said := document(t, asIs)
	h := startHost(t, "pve1", public, prints(said))
	stdout, stderr, err := runHost(t, "settle", request.Settle{
		PrivateKey: private, Host: question(h), Required: true, Machines: [][]string{{"0000:01:00"}},
	})
	require.NoError(t, err)
	assert.Equal(t, said, stdout)
	assert.Empty(t, stderr)

	before := document(t, pendingReboot)
	h.answer = func(command, stdin string) (string, string, int) {
		assert.Equal(t, "the-script\n", stdin)

		if !strings.HasPrefix(command, "action=reboot ") {
			return before, "", 0
		}

		h.mutex.Lock()
		defer h.mutex.Unlock()

		h.answer = prints(document(t, func(f *hostfacts.Facts) { f.System.BootID = "boot-3" }))

		return "rebooting\n", "", -1
	}
	_, stderr, err = runHost(t, "settle", request.Settle{PrivateKey: private, Host: question(h), Reboot: true})
	require.NoError(t, err)
	assert.Equal(t, "pve1 reboots: the kernel runs without iommu=pt\npve1 is back, and runs kernel 6.17.2-1-pve\n", stderr)
	assert.Equal(t, []string{"facts", "facts", "reboot", "facts"}, h.asked())
}
