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

// secrets is the state's resource of the cluster's machine secrets.
var secrets = map[string]any{
	"urn":  "urn:pulumi:prod::talos-proxmox::talos-proxmox:cluster:TalosCluster$talos:machine/secrets:Secrets::prod-secrets",
	"type": "talos:machine/secrets:Secrets", "custom": true, "id": "machine_secrets",
}

// failHalfway is the state after a creation that failed half-way: nothing is pending, and VM 3000 is off.
func failHalfway(w *fixture) {
	w.state, w.power = w.deployment(nil, []any{secrets}), "stopped"
	w.clone, w.cloned = "UPID:pve1:1:0:0:qmclone:900:root@pam!t:", time.Now()
}

// setLastRun sets the start of the stack's last successful run.
func setLastRun(w *fixture, begin time.Time) {
	w.history = fmt.Sprintf(`[
		{"kind": "update", "result": "failed", "startTime": "2099-01-01T00:00:00.000Z"},
		{"kind": "refresh", "result": "succeeded", "startTime": "2098-01-01T00:00:00.000Z"},
		{"kind": "update", "result": "succeeded", "startTime": %q},
		{"kind": "update", "result": "succeeded", "startTime": "2001-01-01T00:00:00.000Z"}
	]`, begin.UTC().Format("2006-01-02T15:04:05.000Z"))
}

// serveTalos serves a Talos API at an address: a configured machine requests a client certificate.
func serveTalos(t *testing.T, w *fixture, address string, configured bool) {
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

// TestRunSparesMachinesThatMayBeInUse: a machine that may belong to a running cluster is removed only if its name is
// given, and nothing is changed before. "yes" is not its name.
func TestRunSparesMachinesThatMayBeInUse(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		change func(t *testing.T, w *fixture)
		byVMID bool
		reason string // why; empty = it is removed without its name
	}{
		"a named machine that is off": {
			change: func(_ *testing.T, w *fixture) { failHalfway(w) }, byVMID: true,
		},
		"a named machine that runs": {
			change: func(_ *testing.T, w *fixture) { failHalfway(w); w.power = "running" }, byVMID: true, reason: "it runs",
		},
		"a named machine that is older than the last run": {
			change: func(_ *testing.T, w *fixture) {
				failHalfway(w)
				setLastRun(w, time.Now())

				w.cloned = time.Now().Add(-time.Hour)
			},
			byVMID: true, reason: "what could be interrupted began later",
		},
		"a named machine that nobody knows the age of": {
			change: func(_ *testing.T, w *fixture) {
				failHalfway(w)
				setLastRun(w, time.Now())

				w.clone = ""
			},
			byVMID: true, reason: "Proxmox does not say when it was made",
		},
		"a named machine that is older than the state": {
			change: func(_ *testing.T, w *fixture) {
				failHalfway(w)
				w.state = w.deployment(nil, []any{secrets, map[string]any{
					"urn": "urn:pulumi:prod::talos-proxmox::pulumi:pulumi:Stack::talos-proxmox-prod", "type": "pulumi:pulumi:Stack",
					"created": time.Now().UTC().Format(time.RFC3339),
				}})
				w.cloned = time.Now().Add(-24 * time.Hour)
			},
			byVMID: true, reason: "what could be interrupted began later",
		},
		"a machine of a pending creation that is newer than the last run": {
			change: func(_ *testing.T, w *fixture) {
				setLastRun(w, time.Now().Add(-time.Hour))
				w.clone, w.cloned = "UPID:pve1:1:0:0:qmclone:900:root@pam!t:", time.Now()
			},
		},
		"a machine of a pending creation that is older": {
			change: func(_ *testing.T, w *fixture) {
				setLastRun(w, time.Now())
				w.clone, w.cloned = "UPID:pve1:1:0:0:qmclone:900:root@pam!t:", time.Now().Add(-time.Hour)
			},
			reason: "what could be interrupted began later",
		},
		"one that was made from an ISO, by its own time": {
			change: func(_ *testing.T, w *fixture) {
				setLastRun(w, time.Now())

				made := w.machine("")
				delete(made["inputs"].(map[string]any), "clone")
				w.state = w.deployment([]any{made}, nil)
				w.vm["meta"] = "creation-qemu=10.1.2,ctime=1700000000"
			},
			reason: "it was made at 2023-11-14 22:13:20 UTC",
		},
		"one in maintenance mode": {
			change: func(t *testing.T, w *fixture) { t.Helper(); serveTalos(t, w, "127.93.1.1", false) },
		},
		"one that is configured": {
			change: func(t *testing.T, w *fixture) { t.Helper(); serveTalos(t, w, "127.93.1.2", true) },
			reason: "a machine with a Talos configuration answers at its address 127.93.1.2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w := newFixture(t)
			test.change(t, w)

			options := func(o *recovery.Options) {
				if test.byVMID {
					removeByVMID(3000)(o)
				}
			}

			err := w.run(options)
			if test.reason == "" {
				require.NoError(t, err)
				assert.Contains(t, w.calls, removal[1])

				return
			}

			require.ErrorContains(t, err, "may be in use: ")
			require.ErrorContains(t, err, test.reason)
			require.ErrorContains(t, err, "--confirm prod-general-1")
			assert.Empty(t, w.calls)

			// Something else is typed.
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

// TestRunRefusesAMachineOfAClusterThatTheStateDoesNotHave: its cluster runs, and the state was lost or is in
// another backend; confirming its name does not help.
func TestRunRefusesAMachineOfAClusterThatTheStateDoesNotHave(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.state = w.deployment(nil, nil)

	err := w.run(func(o *recovery.Options) {
		removeByVMID(3000)(o)

		o.Confirmed = []string{"prod-general-1"}
	})
	require.ErrorContains(t, err, `the state of stack "prod" has nothing of cluster prod, whose machine VM 3000 prod-general-1 is`)
	require.ErrorContains(t, err, "the state was lost, or this is another backend")
	assert.Empty(t, w.calls)
}

// TestRunAsksForTheName of a machine that may be in use.
func TestRunAsksForTheName(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	failHalfway(w)

	w.power = "running"

	var question string

	require.NoError(t, w.run(func(o *recovery.Options) {
		removeByVMID(3000)(o)

		o.TypeName = func(q string) (string, error) {
			question = q

			return "prod-general-1", nil
		}
	}))
	assert.Equal(t, "VM 3000 prod-general-1 on pve2 (running) may be in use: it runs. It goes with its data", question)
	assert.Subset(t, w.calls, removal)

	w = newFixture(t)
	failHalfway(w)

	w.power = "running"

	require.ErrorContains(t, w.run(func(o *recovery.Options) {
		removeByVMID(3000)(o)

		o.TypeName = func(string) (string, error) { return "", errors.New("no more input") }
	}), "unable to ask: no more input")
	assert.Empty(t, w.calls)
}

// TestRunSparesAMachineThatWasStartedMeanwhile, after the confirmation.
func TestRunSparesAMachineThatWasStartedMeanwhile(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	failHalfway(w)

	err := w.run(func(o *recovery.Options) {
		removeByVMID(3000)(o)

		o.Confirm = func(string) (bool, error) {
			w.power = "running"

			return true, nil
		}
	})
	require.ErrorContains(t, err, "VM 3000 prod-general-1 on pve2 (running) may be in use: it runs")
	assert.NotContains(t, w.calls, removal[1])
}

// TestRunComparesTheDescriptionOfAMachineThatIsNamed with that of the planned machine.
func TestRunComparesTheDescriptionOfAMachineThatIsNamed(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	failHalfway(w)

	w.vm["description"] = "talos-proxmox-node owner=organization/talos-proxmox/prod (Talos worker prod-general-1 of cluster other)"

	require.NoError(t, w.run(removeByVMID(3000)))
	assert.Contains(t, w.out.String(), "is left alone: its description is not the one that this stack gives it")
	assert.NotContains(t, w.calls, removal[1])
}

// TestRunComparesTheStackID: two backends may have stacks of the same name, and a lost state had another id.
func TestRunComparesTheStackID(t *testing.T) {
	t.Parallel()

	const text = "talos-proxmox-node owner=organization/talos-proxmox/prod%s (Talos worker prod-general-1 of cluster prod)"

	record := map[string]any{
		"urn": "urn:pulumi:prod::talos-proxmox::talos-proxmox:stack:Record::record", "type": "talos-proxmox:stack:Record",
		"outputs": map[string]any{"deployed": true, "id": "9f86"},
	}

	for name, test := range map[string]struct {
		state  map[string]any // the record
		marked string
		reason string
	}{
		"its own":                                {state: record, marked: " id=9f86"},
		"its own, of a former version":           {state: record},
		"another backend's":                      {state: record, marked: " id=1d2c", reason: "(id=1d2c) made it, which has this one's names and another id"},
		"one with an id, and no id in the state": {marked: " id=1d2c", reason: "the state was lost, or this is another backend"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			failHalfway(w)

			if test.state != nil {
				w.state = w.deployment(nil, []any{secrets, test.state})
			}

			w.vm["description"] = fmt.Sprintf(text, test.marked)

			require.NoError(t, w.run(removeByVMID(3000)))
			assert.Contains(t, w.out.String(), test.reason)
			assert.Equal(t, test.reason == "", w.vm == nil)
		})
	}
}

// TestRunKeepsVolumesOutsideTheConfiguration: somebody may have kept them, or they belong to a machine of another
// Proxmox cluster on the same storage.
func TestRunKeepsVolumesOutsideTheConfiguration(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.volumes = []string{"nfs:3000/vm-3000-disk-7.raw"}

	require.NoError(t, w.run(nil))
	assert.Contains(t, w.out.String(), "is removed; volumes of its VMID that it did not name stay: nfs:3000/vm-3000-disk-7.raw. "+
		"Where nobody needs one, `pvesm free <volume>` on pve2\n")

	w = newFixture(t)
	w.fails = "/nodes/pve2/storage"

	require.NoError(t, w.run(nil))
	assert.Contains(t, w.out.String(), "is removed; what may stay of its volumes is not known: unable to list the storages of pve2")
}
