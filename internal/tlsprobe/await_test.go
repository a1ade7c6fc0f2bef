package tlsprobe

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func worker() Machine {
	return Machine{
		Name:    "one-general-2",
		Host:    "pve2",
		VMID:    3001,
		Address: netip.MustParseAddr("10.0.0.31"),
		MAC:     "02:00:00:00:00:31",
		Bridge:  "vmbr0",
		Gateway: netip.MustParseAddr("10.0.0.1"),
	}
}

func TestAwaitReportsNoProgressAtFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		_, err := Await(t.Context(), worker(), 10*time.Minute, func(context.Context) Answer {
			return Answer{Text: "connection refused", Ready: time.Since(begin) >= 14*time.Second}
		}, func(line string) { t.Error(line) })
		require.NoError(t, err)
		assert.Equal(t, 14*time.Second, time.Since(begin), "a machine that answers is not kept waiting")
	})
}

func TestAwaitReportsProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()

		var lines []string

		_, err := Await(t.Context(), worker(), 10*time.Minute, func(context.Context) Answer {
			if time.Since(begin) < 20*time.Second {
				return Answer{Text: "no route to host"}
			}

			return Answer{Text: "connection refused", Ready: time.Since(begin) > 40*time.Second}
		}, func(line string) { lines = append(lines, line) })
		require.NoError(t, err)
		assert.Equal(t, []string{
			"waiting for one-general-2 (VM 3001 on pve2) on 10.0.0.31:50000 to answer, 15s so far; last: no route to host; its console in Proxmox shows what it does",
			"waiting for one-general-2 (VM 3001 on pve2) on 10.0.0.31:50000 to answer, 30s so far; last: connection refused; its console in Proxmox shows what it does",
		}, lines)
	})
}

func TestAwaitFailsWithAdvice(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		change func(*Machine)
		want   string
	}{
		"a static address": {
			func(*Machine) {}, "check bridge vmbr0, gateway 10.0.0.1, and that no other machine has 10.0.0.31\n",
		},
		"a VLAN": {func(m *Machine) { m.VLAN = 20 }, "check bridge vmbr0, VLAN 20, gateway 10.0.0.1"},
		"an address by DHCP": {
			func(m *Machine) { m.DHCP = true },
			"check bridge vmbr0, and that the router reserves 10.0.0.31 for 02:00:00:00:00:31\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				begin, lines := time.Now(), 0
				m := worker()
				test.change(&m)
				_, err := Await(t.Context(), m, 10*time.Minute, func(ctx context.Context) Answer {
					// As a probe of an address that drops packets.
					select {
					case <-ctx.Done():
						return Answer{Text: "cut off"}
					case <-time.After(probeTimeout):
						return Answer{Text: "no answer"}
					}
				}, func(string) { lines++ })
				require.ErrorContains(t, err, "one-general-2 (VM 3001 on pve2) on 10.0.0.31:50000 did not answer within 10m0s (last: no answer)\nlook at the console of VM 3001")
				require.ErrorContains(t, err, test.want)
				require.ErrorContains(t, err, "then run pulumi up again: it resumes with this machine")
				assert.Equal(t, 10*time.Minute, time.Since(begin))
				assert.Greater(t, lines, 30)
			})
		})
	}
}

func TestAwaitFailsImmediatelyIfTheAnswerIsUnproven(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		_, err := Await(t.Context(), worker(), 10*time.Minute, func(context.Context) Answer {
			return Answer{Text: "it answers in maintenance mode", Unproven: true, Fingerprint: "rMWh="}
		}, func(line string) { t.Error(line) })
		require.EqualError(t, err, strings.Join([]string{
			"one-general-2 (VM 3001 on pve2) on 10.0.0.31:50000 does not prove that it is this machine, and nothing is sent to it: it answers in maintenance mode",
			"look at the console of VM 3001 in Proxmox:",
			"  it runs as a node, or is off: another machine answers on its address; find out which (the MAC that the router or `ip neigh` has for it), and take it off the network",
			"  it is in maintenance mode (it was reset): recreate it with `pulumi up --replace '**::one-general-2-vm'`, or, if its console shows exactly this fingerprint after \"server certificate issued\",",
			"  TALOS_PROXMOX_MAINTENANCE='one-general-2=rMWh=' pulumi up --replace '**::one-general-2-configuration'",
		}, "\n"))
		assert.Zero(t, time.Since(begin))
	})
}

func TestAwaitIsInterrupted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()

		_, err := Await(
			ctx, worker(), 10*time.Minute, func(context.Context) Answer { return Answer{Text: "connection refused"} },
			func(string) {},
		)
		require.ErrorContains(t, err, "interrupted while waiting for one-general-2 (VM 3001 on pve2) on 10.0.0.31:50000 to answer (last: connection refused)")
	})
}
