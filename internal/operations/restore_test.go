package operations

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
)

// withProxmox returns backups whose Proxmox has these machines, by VMID: the description, the name and the status. A
// description of "unreadable" is answered with an error.
func withProxmox(t *testing.T, b Backups, machines map[int][3]string) Backups {
	t.Helper()

	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any

		list := []any{map[string]any{"type": "lxc", "vmid": 99, "name": "lab-cp-8", "node": "pve1", "status": "running"}}

		for vmid, m := range machines {
			list = append(list, map[string]any{
				"type": "qemu", "vmid": vmid, "name": m[1], "node": "pve1", "status": m[2], "template": 0,
			})

			if strings.Contains(r.URL.Path, fmt.Sprintf("/qemu/%d/config", vmid)) {
				answer = map[string]any{"description": m[0]}

				if m[0] == "unreadable" {
					http.Error(w, "no route to host", 595)

					return
				}
			}
		}

		if strings.HasSuffix(r.URL.Path, "/cluster/resources") {
			answer = list
		}

		assert.NoError(t, json.NewEncoder(w).Encode(map[string]any{"data": answer}))
	}))
	t.Cleanup(server.Close)

	b.proxmoxSetting = func(key string) string {
		return map[string]string{"endpoint": server.URL, "apiToken": "a@pve!b=c", "insecure": "true"}[key]
	}

	return b
}

func TestRestoreRequest(t *testing.T) {
	t.Parallel()
	b, lastRequest := newBackups(t, nil)
	b = withProxmox(t, b, nil)
	err := b.Restore(t.Context(), RestoreOptions{Cluster: "lab"})
	require.ErrorContains(t, err, "stack lab has no machine secrets of cluster lab")

	b.Deployed = withState(t, b.Deployed)
	require.NoError(t, b.Restore(t.Context(), RestoreOptions{
		Cluster: "lab", Confirm: "lab", Snapshot: "/backups/file.age", Identities: "a key", Timeout: time.Hour,
		Healthy: true, LoseVolumes: []string{"lab-cp-1/data"}, Gone: []string{"lab-cp-4"},
	}))

	call := lastRequest()
	assert.Equal(t, "restore", call[0])

	var sent request.Restore
	require.NoError(t, json.Unmarshal([]byte(call[1]), &sent))
	assert.Equal(t, "1h0m0s", sent.Timeout)
	assert.Equal(t, "a key", sent.Identities)
	assert.Equal(t, "lab", sent.Confirm)
	assert.Equal(t, "/backups/file.age", sent.Snapshot)
	assert.True(t, sent.Healthy)
	assert.Equal(t, []string{"lab-cp-1/data"}, sent.LoseVolumes)
	assert.Equal(t, []string{"lab-cp-4"}, sent.Gone)
}

// TestRestoreNeedsNoOutputs: the client is issued by the authority in the state. Outputs may be a year old, of the
// authority before a rotation, or, after secrets reseal, missing with everything but the machine secrets.
func TestRestoreNeedsNoOutputs(t *testing.T) {
	t.Parallel()

	resealed := func(t *testing.T, state []byte) []byte {
		t.Helper()

		var file struct {
			Version    int `json:"version"`
			Deployment struct {
				Resources []map[string]any `json:"resources"`
			} `json:"deployment"`
		}

		require.NoError(t, json.Unmarshal(state, &file))

		kept := file.Deployment.Resources[:0]

		for _, r := range file.Deployment.Resources {
			if strings.Contains(r["type"].(string), "Secrets") {
				kept = append(kept, r)
			}
		}

		file.Deployment.Resources = kept
		text, err := json.Marshal(file)
		require.NoError(t, err)

		return text
	}

	for name, change := range map[string]func(*testing.T, []byte) []byte{
		"outputs of another authority": func(_ *testing.T, state []byte) []byte { return state },
		"a resealed state":             resealed,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			state := change(t, stateWithSecrets(t))
			b, lastRequest := newBackups(t, nil)
			b = withProxmox(t, b, nil)
			config := b.Pulumi
			b.Pulumi = func(ctx context.Context, in io.Reader, args ...string) ([]byte, error) {
				if args[0] == "stack" {
					return state, nil
				}

				return config(ctx, in, args...)
			}

			require.NoError(t, b.Restore(t.Context(), RestoreOptions{Cluster: "lab", Confirm: "lab", Snapshot: "/file"}))

			var sent request.Restore
			require.NoError(t, json.Unmarshal([]byte(lastRequest()[1]), &sent))
			assert.Equal(t, []string{"os:admin"}, clientRoles(t, sent.Talosconfig))

			found, err := b.readState(t.Context())
			require.NoError(t, err)

			issuing, _ := found.secretsOf("lab").authority(talos.TalosAuthority)
			assert.Equal(t, string(issuing.Certificate), trustedAuthority(t, talos.TalosAuthority, sent.Talosconfig))
		})
	}
}

// TestRestoreAsksForOtherControlPlanes: one that was taken out of the stack file may still run, with its etcd data.
func TestRestoreAsksForOtherControlPlanes(t *testing.T) {
	t.Parallel()

	marker := func(project, id, cluster string) string {
		return ownership.Node(ownership.Of("organization", project, "lab", id),
			ownership.NodeAbout("controlplane", "lab-cp-4", cluster))
	}
	four := [3]string{marker("talos-proxmox", "9f86", "lab"), "lab-cp-4", "running"}
	worker := ownership.Node(ownership.Of("organization", "talos-proxmox", "lab", "9f86"),
		ownership.NodeAbout("worker", "lab-general-9", "lab"))

	for name, test := range map[string]struct {
		machines map[int][3]string
		gone     []string
		running  map[string]string // nil = unknown
		wantErr  string
	}{
		"none": {machines: map[int][3]string{}, running: map[string]string{}},
		"one that runs": {
			machines: map[int][3]string{2003: four},
			wantErr:  "Nothing was changed:\n  lab-cp-4: VM 2003 on pve1 (running)\nshut them down in Proxmox",
		},
		"one whose host is away": {
			machines: map[int][3]string{2003: {"unreadable", "lab-cp-4", "unknown"}}, wantErr: "lab-cp-4: VM 2003 on pve1 (unknown)",
		},
		"one that runs, and is gone as the user says": {
			machines: map[int][3]string{2003: four}, gone: []string{"lab-cp-4"},
			running: map[string]string{"lab-cp-4": "VM 2003 on pve1 (running)"},
		},
		"one that is off": {
			machines: map[int][3]string{2003: {four[0], "lab-cp-4", "stopped"}}, running: map[string]string{},
		},
		"one of the state before it was lost": {
			machines: map[int][3]string{2003: {marker("talos-proxmox", "1d2c", "lab"), "lab-cp-4", "running"}},
			wantErr:  "lab-cp-4: VM 2003",
		},
		"those of the plan, and other machines": {
			machines: map[int][3]string{
				2000: {marker("talos-proxmox", "9f86", "lab"), "lab-cp-1", "running"}, 150: {"mail", "mail", "running"},
				2004: {marker("talos-proxmox", "9f86", "other"), "other-cp-4", "running"},
				2005: {marker("another", "9f87", "lab"), "lab-cp-5", "running"}, 3009: {worker, "lab-general-9", "running"},
				160: {"unreadable", "web", "unknown"},
			},
			running: map[string]string{
				"mail": "VM 150 on pve1 (running)", "other-cp-4": "VM 2004 on pve1 (running)", "lab-cp-5": "VM 2005 on pve1 (running)",
				"lab-general-9": "VM 3009 on pve1 (running)", "web": "VM 160 on pve1 (unknown)",
			},
		},
		"no answer": {
			wantErr: "so it is unknown whether control planes that were taken out of the stack file still run",
		},
		"no answer, and none as the user says": {gone: []string{NoneGone}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			b, lastRequest := newBackups(t, nil)
			b.Deployed = withState(t, b.Deployed)
			b.proxmoxSetting = func(key string) string {
				return map[string]string{"endpoint": "https://127.0.0.1:1", "apiToken": "a@pve!b=c"}[key]
			}

			if test.machines != nil {
				b = withProxmox(t, b, test.machines)
			}

			err := b.Restore(t.Context(), RestoreOptions{
				Cluster: "lab", Confirm: "lab", Snapshot: "/file", Gone: test.gone,
			})
			if test.wantErr != "" {
				require.ErrorContains(t, err, test.wantErr)
				assert.NoFileExists(t, filepath.Join(filepath.Dir(b.TalosOps), "request"), "talosops is not started")

				return
			}

			require.NoError(t, err)

			var sent request.Restore
			require.NoError(t, json.Unmarshal([]byte(lastRequest()[1]), &sent))
			assert.Equal(t, test.running, sent.Running)
			assert.NotContains(t, sent.Gone, NoneGone)
		})
	}
}

func TestRestoreOfOffSiteCopy(t *testing.T) {
	t.Parallel()

	b, lastRequest := newBackups(t, nil)
	b = withProxmox(t, b, nil)
	b.Deployed = withState(t, b.Deployed)
	restore := RestoreOptions{Cluster: "lab", Confirm: "lab", Snapshot: "s3://bucket/file.age"}
	require.ErrorContains(t, b.Restore(t.Context(), restore), "stack lab has no backup.s3: set it, or fetch the file")

	b.OffSite = &fakeOffSite{}
	require.NoError(t, b.Restore(t.Context(), restore))

	var sent request.Restore
	require.NoError(t, json.Unmarshal([]byte(lastRequest()[1]), &sent))
	assert.Equal(t, "fetched.age", filepath.Base(sent.Snapshot))
	assert.NoDirExists(t, filepath.Dir(sent.Snapshot))
}
