package verbs

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/verbtest"
)

// newProxmox is an API with the configurations of VMs, which the token t@pve!t=secret reads; other VMs are on a host
// that does not answer.
func newProxmox(t *testing.T, configurations map[int]string) *httptest.Server {
	t.Helper()

	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimPrefix(r.URL.Path, "/api2/json")

		if r.Header.Get("Authorization") != "PVEAPIToken=t@pve!t=secret" {
			http.Error(w, "", http.StatusUnauthorized)

			return
		}

		if path == "/cluster/resources" {
			_, _ = fmt.Fprint(w, `{"data": [`+
				`{"type": "qemu", "vmid": 3000, "name": "one", "node": "pve1", "status": "running"},`+
				`{"type": "qemu", "vmid": 3001, "name": "two", "node": "pve1", "status": "running"},`+
				`{"type": "lxc", "vmid": 3002, "name": "box", "node": "pve1", "status": "running"}]}`)

			return
		}

		for vmid, configuration := range configurations {
			if path == fmt.Sprintf("/nodes/pve1/qemu/%d/config", vmid) {
				_, _ = fmt.Fprintf(w, `{"data": %s}`, configuration)

				return
			}
		}

		w.WriteHeader(http.StatusBadGateway)
	}))
	t.Cleanup(server.Close)

	return server
}

// TestVerify also expects that a machine that is gone is fine, and that no message has the token.
func TestVerify(t *testing.T) {
	const (
		ours   = `{"description": "talos-proxmox-node owner=o/talos-proxmox/prod id=9f86 (Talos worker w-1 of cluster c)", "smbios1": "uuid=a"}`
		theirs = `{"name": "mail-server", "smbios1": "uuid=b"}`
	)

	for name, test := range map[string]struct {
		configurations map[int]string
		vmids          []int
		force          string
		err            []string
	}{
		"the stack's machines, one of them gone": {configurations: map[int]string{3000: ours}, vmids: []int{3000, 3009}},
		"another machine and a container": {
			configurations: map[int]string{3000: theirs}, vmids: []int{3000, 3002}, force: "1",
			err: []string{
				"no machine was deleted:\n  w-1: its VMID 3000 now belongs to VM 3000 mail-server on host pve1, and no stack made it",
				"w-1: its VMID 3002 now belongs to VM 3002 box on host pve1, and it is a container",
				"`talos-proxmox recover prod` removes w-1 from the state",
			},
		},
		"a machine whose host does not answer": {
			configurations: map[int]string{3000: ours}, vmids: []int{3000, 3001},
			err: []string{"VM 3001: unable to read VM 3001 on host pve1", "TALOS_PROXMOX_FORCE=1 pulumi destroy"},
		},
		"such a machine, forced": {configurations: map[int]string{3000: ours}, vmids: []int{3000, 3001}, force: "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(request.ForceVariable, test.force)

			req := request.Verify{Stack: "prod", Owner: "o/talos-proxmox/prod", ID: "9f86", Proxmox: map[string]string{
				"endpoint": newProxmox(t, test.configurations).URL, "apiToken": "t@pve!t=secret", "insecure": "true",
			}}
			for _, vmid := range test.vmids {
				req.Machines = append(req.Machines, ownership.Machine{Name: "w-1", VMID: vmid, CreationID: "a"})
			}

			_, _, err := run(t, "verify", req, verbtest.NoInterrupt)
			if len(test.err) == 0 {
				require.NoError(t, err)

				return
			}

			for _, part := range test.err {
				require.ErrorContains(t, err, part)
			}

			assert.NotContains(t, err.Error(), "secret")
		})
	}
}
