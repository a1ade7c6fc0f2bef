package components

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/enginetest"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/tokens"
)

// TestNodeLeavesBeforeItsVMIsDeleted expects a command that runs only when it is deleted.
func TestNodeLeavesBeforeItsVMIsDeleted(t *testing.T) {
	t.Parallel()

	planned := plannedCluster(3, 1)
	planned.Backup = &Backup{Directory: "~/backups", Recipients: []string{"age1x"}, Keep: 7}
	r := runCluster(t, enginetest.Options{}, planned)

	const controlPlanes = `{"timeout":"30m","controlPlanes":[{"name":"one-cp-1","address":"127.1.1.10"},` +
		`{"name":"one-cp-2","address":"127.1.1.11"},{"name":"one-cp-3","address":"127.1.1.12"}],`

	secrets, err := talos.PlaceholderSecrets()
	require.NoError(t, err)

	talosAuthority, err := json.Marshal(secrets["certs"].(map[string]any)["os"])
	require.NoError(t, err)
	// No client certificate, which would expire.
	authority := `"authority":` + strings.NewReplacer(`"cert"`, `"certificate"`).Replace(string(talosAuthority)) + `}`

	for name, stdin := range map[string]string{
		"one-cp-2": controlPlanes + `"node":{"name":"one-cp-2","address":"127.1.1.11"},"backup":{"name":"one",` +
			`"directory":"~/backups","recipients":["age1x"],"keep":7},` + authority,
		"one-general-1": controlPlanes +
			`"node":{"name":"one-general-1","address":"127.1.1.20"},` + authority,
	} {
		command := r.ByType(tokens.LocalCommand)[name+"-leave"]

		for _, property := range []string{"create", "update", "triggers", "environment"} {
			assert.True(t, command.Input(property).IsNull(), property)
		}

		assert.Equal(t, "${TALOSOPS:-talosops} leave", command.Input("delete").StringValue())
		require.True(t, command.Input("stdin").IsSecret())

		text, err := json.Marshal(enginetest.RequestOf[request.Leave](t, command))
		require.NoError(t, err)
		assert.JSONEq(t, stdin, string(text))

		assert.Subset(t, command.DependsOn(), []string{name + "-configuration", name + "-vm", "one-bootstrap"})
		assert.NotContains(t, command.DependsOn(), "one-cp-1-leave", "leaves are registered at once")
		assert.Equal(t, []string{name + "-vm"}, command.ReplaceWith())
		assert.Contains(t, command.Request.GetDeletedWith(), "::one-secrets")
	}
}
