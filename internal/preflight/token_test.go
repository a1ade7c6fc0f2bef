package preflight_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/internal/preflight"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
)

// TestTokenExpiry: a warning a month before, if Proxmox shows the expiry. It is not requested without the privilege.
func TestTokenExpiry(t *testing.T) {
	t.Parallel()

	const seen = `"/access/groups/talos-proxmox": {"Sys.Audit": 1}`

	in := func(days int) int64 { return time.Now().AddDate(0, 0, days).Unix() }

	for name, test := range map[string]struct {
		rights, user string
		wants        string // empty = no warning
	}{
		"soon":            {seen, fmt.Sprintf(`{"tokens": {"talos": {"expire": %d}}}`, in(20)), "pulumi@pve!talos expires on " + time.Unix(in(20), 0).UTC().Format(time.DateOnly)},
		"with its user":   {seen, fmt.Sprintf(`{"expire": %d, "tokens": {"talos": {"expire": "%d"}}}`, in(20), in(300)), "pulumi@pve!talos expires on"},
		"later":           {seen, fmt.Sprintf(`{"expire": 0, "tokens": {"talos": {"expire": %d}}}`, in(40)), ""},
		"never":           {seen, `{"tokens": {"talos": {"expire": 0}}}`, ""},
		"another token":   {seen, fmt.Sprintf(`{"tokens": {"talos": {"privsep": 1}, "other": {"expire": %d}}}`, in(1)), ""},
		"nobody is asked": {`"/vms": {"VM.Audit": 1}`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			requested := false

			api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/api2/json/access/permissions":
					_, _ = fmt.Fprintf(w, `{"data": {%s}}`, test.rights)
				case "/api2/json/access/users/pulumi@pve":
					requested = true
					_, _ = fmt.Fprintf(w, `{"data": %s}`, test.user)
				default:
					_, _ = w.Write([]byte(`{"data": null}`))
				}
			}))
			defer api.Close()

			setting := func(key string) string {
				return map[string]string{"endpoint": api.URL, "apiToken": "pulumi@pve!talos=uuid"}[key]
			}
			machines := proxmoxapi.NewMachines(setting, api.Client().Transport)

			credentials := preflight.Credentials(t.Context(), machines).Error()
			assert.Equal(t, test.wants != "", credentials != "", credentials)
			assert.Contains(t, credentials, test.wants)

			plan := &spec.Plan{}
			site := preflight.Read(t.Context(), preflight.Sources{
				Plan: plan, Endpoint: api.URL, Proxmox: machines,
				Factory: talos.Factory{URL: api.URL}, Transport: api.Client().Transport,
			})
			assert.Equal(t, test.user != "", requested)

			if text := problem.Report(preflight.Check(plan, preflight.Stack{}, site), nil); test.wants == "" {
				assert.NotContains(t, text, " expires on ")
			} else {
				assert.Contains(t, text, test.wants)
			}
		})
	}
}

// TestCredentialsThatAreRefused are a problem; a Proxmox that does not answer is none.
func TestCredentialsThatAreRefused(t *testing.T) {
	t.Parallel()

	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	}))
	setting := func(key string) string {
		return map[string]string{"endpoint": api.URL, "apiToken": "pulumi@pve!talos=uuid"}[key]
	}
	ask := func() string {
		return preflight.Credentials(t.Context(), proxmoxapi.NewMachines(setting, api.Client().Transport)).Error()
	}
	assert.Contains(t, ask(), "proxmoxve:apiToken: is refused (")
	assert.NotContains(t, ask(), "uuid")

	api.Close()
	assert.Empty(t, ask())
}
