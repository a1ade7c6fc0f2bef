package machine_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestOperatorsTakeTurnsByALease: the model keeps a Lease as Kubernetes does, whoever comes second is told.
func TestOperatorsTakeTurnsByALease(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	l.cluster(1, 0)

	k := l.admin()

	const list = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"

	body := func(version, holder string) string {
		return `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"turns","namespace":"kube-system",` +
			`"resourceVersion":"` + version + `"},"spec":{"holderIdentity":"` + holder + `","leaseDurationSeconds":40,` +
			`"renewTime":"2026-11-22T20:00:00.000000Z"}}`
	}
	ask := func(method, path, body string, code int) map[string]any {
		got, object := k.do(method, path, "application/json", body)
		require.Equal(t, code, got, object)

		return object
	}
	version := func(o map[string]any) string { return o["metadata"].(map[string]any)["resourceVersion"].(string) }

	ask(http.MethodGet, list+"/turns", "", http.StatusNotFound)
	ask(http.MethodPut, list+"/turns", body("", "ann"), http.StatusNotFound)
	made := ask(http.MethodPost, list, body("", "ann"), http.StatusCreated)
	ask(http.MethodPost, list, body("", "ben"), http.StatusConflict)
	renewed := ask(http.MethodPut, list+"/turns", body(version(made), "ann"), http.StatusOK)
	assert.NotEqual(t, version(made), version(renewed))
	ask(http.MethodPut, list+"/turns", body(version(made), "ben"), http.StatusConflict)

	read := ask(http.MethodGet, list+"/turns", "", http.StatusOK)
	assert.Equal(t, version(renewed), version(read))
	assert.Equal(t, "ann", read["spec"].(map[string]any)["holderIdentity"])
}
