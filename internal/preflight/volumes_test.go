package preflight_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/internal/preflight"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/talos"
)

// TestForeignVolumes are read on the datastores of storage classes only.
func TestForeignVolumes(t *testing.T) {
	t.Parallel()

	s := newFixture()
	addAccounts("fast")(s)

	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/storage/fast/content"):
			_, _ = fmt.Fprintf(w, `{"data": [{"vmid": 9999}, {"vmid": %d}, {"vmid": "101"}, {"vmid": 7}, {"volid": "fast:x"}]}`,
				s.worker().VMID)
		case strings.HasSuffix(r.URL.Path, "/content"):
			t.Errorf("unexpected request: %s", r.URL.Path)
		default:
			_, _ = w.Write([]byte(`{"data": null}`))
		}
	}))
	defer api.Close()

	setting := func(key string) string {
		return map[string]string{"endpoint": api.URL, "apiToken": "pulumi@pve!talos=uuid"}[key]
	}
	site := preflight.Read(t.Context(), preflight.Sources{
		Plan: s.plan, Stack: s.stack, Endpoint: api.URL, Proxmox: proxmoxapi.NewMachines(setting, api.Client().Transport),
		Factory: talos.Factory{URL: api.URL}, Transport: api.Client().Transport,
	})
	assert.Contains(t, problem.Report(preflight.Check(s.plan, s.stack, site), nil),
		`"fast" holds volumes of machines that are not this stack's (7 101), which the CSI plugin's token may delete`)
}
