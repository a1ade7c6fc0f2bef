package recovery_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/recovery"
)

// secrets are the machine secrets of the cluster in the state.
var secrets = map[string]any{
	"urn":  "urn:pulumi:prod::talos-proxmox::talos-proxmox:cluster:TalosCluster$talos:machine/secrets:Secrets::prod-secrets",
	"type": "talos:machine/secrets:Secrets", "custom": true, "id": "machine_secrets",
}

// failed leaves the stack as a creation that failed half-way does: nothing is pending, and VM 3000 is off.
func failed(w *world) {
	w.state, w.power = w.deployment(nil, []any{secrets}), "stopped"
	w.clone, w.cloned = "UPID:pve1:1:0:0:qmclone:900:root@pam!t:", time.Now()
}

// ran says that the stack's last run that succeeded began at a time.
func ran(w *world, begin time.Time) {
	w.history = fmt.Sprintf(`[
		{"kind": "update", "result": "failed", "startTime": "2099-01-01T00:00:00.000Z"},
		{"kind": "refresh", "result": "succeeded", "startTime": "2098-01-01T00:00:00.000Z"},
		{"kind": "update", "result": "succeeded", "startTime": %q},
		{"kind": "update", "result": "succeeded", "startTime": "2001-01-01T00:00:00.000Z"}
	]`, begin.UTC().Format("2006-01-02T15:04:05.000Z"))
}

// answers has a Talos machine answer at an address: one that is configured asks for a client certificate.
func answers(t *testing.T, w *world, address string, configured bool) {
	t.Helper()

	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address+":50000")
	require.NoError(t, err)

	server := &httptest.Server{
		Listener: listener, Config: &http.Server{ReadHeaderTimeout: time.Second}, EnableHTTP2: true,
	}
	if server.TLS = (&tls.Config{MinVersion: tls.VersionTLS12}); configured {
		server.TLS.ClientAuth = tls.RequireAnyClientCert
	}

	server.StartTLS()
	t.Cleanup(server.Close)

	made := w.machine("")
	made["inputs"].(map[string]any)["initialization"] = map[string]any{
		"ipConfigs": []any{map[string]any{"ipv4": map[string]any{"address": address + "/24"}}},
	}
	w.state = w.deployment([]any{made}, nil)
}

// TestRunSparesMachinesThatMayBeInUse: what may be a living cluster's is removed by its name only, and nothing of the
// stack is touched before. No answer yes is its name.
func TestRunSparesMachinesThatMayBeInUse(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		change func(t *testing.T, w *world)
		named  bool
		spared string // why; empty = it is removed without its name
	}{
		"a named machine that is off": {
			change: func(_ *testing.T, w *world) { failed(w) }, named: true,
		},
		"a named machine that runs": {
			change: func(_ *testing.T, w *world) { failed(w); w.power = "running" }, named: true, spared: "it runs",
		},
		"a named machine that is older than the last run": {
			change: func(_ *testing.T, w *world) {
				failed(w)
				ran(w, time.Now())

				w.cloned = time.Now().Add(-time.Hour)
			},
			named: true, spared: "what could be interrupted began later",
		},
		"a named machine that nobody knows the age of": {
			change: func(_ *testing.T, w *world) {
				failed(w)
				ran(w, time.Now())

				w.clone = ""
			},
			named: true, spared: "Proxmox does not say when it was made",
		},
		"a named machine that is older than the state": {
			change: func(_ *testing.T, w *world) {
				failed(w)
				w.state = w.deployment(nil, []any{secrets, map[string]any{
					"urn": "urn:pulumi:prod::talos-proxmox::pulumi:pulumi:Stack::talos-proxmox-prod", "type": "pulumi:pulumi:Stack",
					"created": time.Now().UTC().Format(time.RFC3339),
				}})
				w.cloned = time.Now().Add(-24 * time.Hour)
			},
			named: true, spared: "what could be interrupted began later",
		},
		"a machine of a pending creation that is newer than the last run": {
			change: func(_ *testing.T, w *world) {
				ran(w, time.Now().Add(-time.Hour))
				w.clone, w.cloned = "UPID:pve1:1:0:0:qmclone:900:root@pam!t:", time.Now()
			},
		},
		"a machine of a pending creation that is older": {
			change: func(_ *testing.T, w *world) {
				ran(w, time.Now())
				w.clone, w.cloned = "UPID:pve1:1:0:0:qmclone:900:root@pam!t:", time.Now().Add(-time.Hour)
			},
			spared: "what could be interrupted began later",
		},
		"one that was made from an ISO, by its own time": {
			change: func(_ *testing.T, w *world) {
				ran(w, time.Now())

				made := w.machine("")
				delete(made["inputs"].(map[string]any), "clone")
				w.state = w.deployment([]any{made}, nil)
				w.vm["meta"] = "creation-qemu=10.1.2,ctime=1700000000"
			},
			spared: "it was made at 2023-11-14 22:13:20 UTC",
		},
		"one in maintenance mode": {
			change: func(t *testing.T, w *world) { t.Helper(); answers(t, w, "127.93.1.1", false) },
		},
		"one that is configured": {
			change: func(t *testing.T, w *world) { t.Helper(); answers(t, w, "127.93.1.2", true) },
			spared: "a machine with a Talos configuration answers at its address 127.93.1.2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w := newWorld(t)
			test.change(t, w)

			options := func(o *recovery.Options) {
				if test.named {
					named(3000)(o)
				}
			}

			err := w.run(options)
			if test.spared == "" {
				require.NoError(t, err)
				assert.Contains(t, w.calls, removal[1])

				return
			}

			require.ErrorContains(t, err, "may be in use: ")
			require.ErrorContains(t, err, test.spared)
			require.ErrorContains(t, err, "--confirm prod-general-1")
			assert.Empty(t, w.calls)

			// Somebody types something else.
			err = w.run(func(o *recovery.Options) {
				options(o)
				o.TypeName = func(string) (string, error) { return "yes", nil }
			})
			require.ErrorIs(t, err, recovery.ErrDeclined)
			assert.Empty(t, w.calls)

			require.NoError(t, w.run(func(o *recovery.Options) {
				options(o)
				o.Confirmed = []string{"prod-general-1"}
			}))
			assert.Contains(t, w.calls, removal[1])
		})
	}
}

// TestRunRefusesAMachineOfAClusterThatTheStateDoesNotHave: it is a living cluster's, whose state was lost or is in
// another backend, and its name does not help.
func TestRunRefusesAMachineOfAClusterThatTheStateDoesNotHave(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.state = w.deployment(nil, nil)

	err := w.run(func(o *recovery.Options) {
		named(3000)(o)

		o.Confirmed = []string{"prod-general-1"}
	})
	require.ErrorContains(t, err, `the state of stack "prod" has nothing of cluster prod, whose machine VM 3000 prod-general-1 is`)
	require.ErrorContains(t, err, "the state was lost, or this is another backend")
	assert.Empty(t, w.calls)
}

// TestRunTypesTheName has somebody type the name of a machine that may be in use.
func TestRunTypesTheName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	failed(w)

	w.power = "running"

	var asked string

	require.NoError(t, w.run(func(o *recovery.Options) {
		named(3000)(o)

		o.TypeName = func(question string) (string, error) {
			asked = question

			return "prod-general-1", nil
		}
	}))
	assert.Equal(t, "VM 3000 prod-general-1 on pve2 (running) may be in use: it runs. It goes with its data", asked)
	assert.Subset(t, w.calls, removal)

	w = newWorld(t)
	failed(w)

	w.power = "running"

	require.ErrorContains(t, w.run(func(o *recovery.Options) {
		named(3000)(o)

		o.TypeName = func(string) (string, error) { return "", errors.New("no more input") }
	}), "unable to ask: no more input")
	assert.Empty(t, w.calls)
}

// TestRunSparesAMachineThatWasStartedMeanwhile: it was off when the question was asked.
func TestRunSparesAMachineThatWasStartedMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	failed(w)

	err := w.run(func(o *recovery.Options) {
		named(3000)(o)

		o.Confirm = func(string) (bool, error) {
			w.power = "running"

			return true, nil
		}
	})
	require.ErrorContains(t, err, "VM 3000 prod-general-1 on pve2 (running) may be in use: it runs")
	assert.NotContains(t, w.calls, removal[1])
}

// TestRunComparesTheDescriptionOfAMachineThatIsNamed with the one that the stack gives the machine that it plans.
func TestRunComparesTheDescriptionOfAMachineThatIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	failed(w)

	w.vm["description"] = "talos-proxmox-node owner=organization/talos-proxmox/prod (Talos worker prod-general-1 of cluster other)"

	require.NoError(t, w.run(named(3000)))
	assert.Contains(t, w.out.String(), "is left alone: its description is not the one that this stack gives it")
	assert.NotContains(t, w.calls, removal[1])
}

// TestRunKnowsItsMachinesByTheirID: two backends may have stacks of the same name, and a state that was lost had
// another id.
func TestRunKnowsItsMachinesByTheirID(t *testing.T) {
	t.Parallel()

	const text = "talos-proxmox-node owner=organization/talos-proxmox/prod%s (Talos worker prod-general-1 of cluster prod)"

	record := map[string]any{
		"urn": "urn:pulumi:prod::talos-proxmox::talos-proxmox:stack:Record::record", "type": "talos-proxmox:stack:Record",
		"outputs": map[string]any{"deployed": true, "id": "9f86"},
	}

	for name, test := range map[string]struct {
		state  map[string]any // the record
		marked string
		spared string
	}{
		"its own":                                {state: record, marked: " id=9f86"},
		"its own, of a former version":           {state: record},
		"another backend's":                      {state: record, marked: " id=1d2c", spared: "(id=1d2c) made it, which has this one's names and another id"},
		"one with an id, and no id in the state": {marked: " id=1d2c", spared: "the state was lost, or this is another backend"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			failed(w)

			if test.state != nil {
				w.state = w.deployment(nil, []any{secrets, test.state})
			}

			w.vm["description"] = fmt.Sprintf(text, test.marked)

			require.NoError(t, w.run(named(3000)))
			assert.Contains(t, w.out.String(), test.spared)
			assert.Equal(t, test.spared == "", w.vm == nil)
		})
	}
}

// TestRunLeavesVolumesThatTheMachineDoesNotName: somebody may have kept them, or a machine of another Proxmox cluster
// on the same storage has them.
func TestRunLeavesVolumesThatTheMachineDoesNotName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.volumes = []string{"nfs:3000/vm-3000-disk-7.raw"}

	require.NoError(t, w.run(nil))
	assert.Contains(t, w.out.String(), "is removed; volumes of its VMID that it did not name stay: nfs:3000/vm-3000-disk-7.raw. "+
		"Where nobody needs one, `pvesm free <volume>` on pve2\n")

	w = newWorld(t)
	w.fails = "/nodes/pve2/storage"

	require.NoError(t, w.run(nil))
	assert.Contains(t, w.out.String(), "is removed; what may stay of its volumes is not known: unable to list the storages of pve2")
}
