package verbs

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/verbtest"
)

const bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/"

// TestGroupsGetClusterRoles: bindings, a second run without changes, other groups, and the removal of what is not set
// any more. Bindings of others stay.
func TestGroupsGetClusterRoles(t *testing.T) {
	t.Parallel()

	const theirs = `{"kind":"ClusterRoleBinding","apiVersion":"rbac.authorization.k8s.io/v1","metadata":{"name":"theirs"}}`

	api := clustertest.NewAPI(map[string]string{bindings + "theirs": theirs})
	served := clustertest.Serve(t, &clustertest.TalosNode{}, api)
	access := func(roles map[string][]string, flags ...string) (out, progress string) {
		out, progress, err := run(t, "access", request.Access{
			Common: served.Common, Kubeconfig: served.Kubeconfig, ClusterRoles: roles,
		}, verbtest.NoInterrupt, append(flags, "--interval", "10ms")...)
		require.NoError(t, err)

		return out, progress
	}
	roles := map[string][]string{"cluster-admin": {"oidc:platform"}, "view": {"oidc:developers", "oidc:platform"}}

	out, progress := access(roles)
	assert.JSONEq(t, `{"clusterRoles":["cluster-admin","view"]}`, out)
	assert.Contains(t, progress, "ClusterRoleBinding talos-proxmox:view: applied")
	assert.JSONEq(t, `[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"oidc:developers"},`+
		`{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"oidc:platform"}]`, toJSON(api.Objects[bindings+"talos-proxmox:view"]["subjects"]))
	assert.JSONEq(t, `{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"}`,
		toJSON(api.Objects[bindings+"talos-proxmox:cluster-admin"]["roleRef"]))

	_, progress = access(roles)
	assert.Empty(t, progress)

	delete(roles, "cluster-admin")
	_, progress = access(roles)
	assert.Contains(t, progress, "ClusterRoleBinding talos-proxmox:cluster-admin: deleted, it is not set any more")

	_, _ = access(roles, "--remove")

	assert.Len(t, api.Objects, 1)
	assert.Contains(t, api.Objects, bindings+"theirs")
}

// TestForeignBindingsAreNotTakenOver: neither those of somebody else, nor objects of another verb.
func TestForeignBindingsAreNotTakenOver(t *testing.T) {
	t.Parallel()

	for _, labels := range []string{`{}`, `{"talos-proxmox/part":"proxmox"}`} {
		api := clustertest.NewAPI(map[string]string{bindings + "talos-proxmox:view": `{"kind":"ClusterRoleBinding",` +
			`"apiVersion":"rbac.authorization.k8s.io/v1","metadata":{"name":"talos-proxmox:view","labels":` + labels + `}}`})
		served := clustertest.Serve(t, &clustertest.TalosNode{}, api)

		_, _, err := run(t, "access", request.Access{
			Common: served.Common, Kubeconfig: served.Kubeconfig, ClusterRoles: map[string][]string{"view": {"oidc:developers"}},
		}, verbtest.NoInterrupt, "--interval", "10ms")
		require.ErrorContains(t, err, "ClusterRoleBinding talos-proxmox:view exists already and belongs to somebody else")
	}
}
