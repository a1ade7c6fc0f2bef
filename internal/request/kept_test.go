package request_test

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/tlsprobe"
)

func applyRequest(configuration, talosconfig string) request.Apply {
	controlPlane := request.Node{Name: "one-cp-1", Address: netip.MustParseAddr("10.0.0.10")}

	return request.Apply{
		Common:        request.Common{ControlPlanes: []request.Node{controlPlane}},
		Machine:       tlsprobe.Machine{Name: "one-general-1", Address: netip.MustParseAddr("10.0.0.20")},
		Configuration: configuration, Talosconfig: talosconfig,
	}
}

// TestKeptApplyRequest: the state keeps no machine secret and no talosconfig of a request, and enough to know the
// configuration and whether a request is another one.
func TestKeptApplyRequest(t *testing.T) {
	t.Parallel()

	secrets, err := talos.PlaceholderSecrets()
	require.NoError(t, err)

	key := secrets["certs"].(map[string]any)["os"].(map[string]any)["key"].(string)
	configuration := "machine:\n    ca:\n        key: " + key + "\n" + strings.Repeat("    # a node's\n", 100)
	whole := applyRequest(configuration, "of the administrator")

	kept, err := whole.Keep(secrets)
	require.NoError(t, err)
	assert.Less(t, len(kept), 500, "most of it is in the dictionary")

	opened, elsewhere, err := request.Open(kept)
	require.NoError(t, err)
	assert.True(t, elsewhere, "the program hands over the rest")
	assert.NotContains(t, opened, key)
	assert.NotContains(t, opened, whole.Talosconfig)

	read := request.AppliedConfiguration(kept)
	assert.Equal(t, whole.Machine, read.Machine)
	assert.Contains(t, read.Configuration, "key: $(certs.os.key)")
	assert.False(t, (&request.KeptApply{Apply: read.Apply, ConfigurationDigest: read.ConfigurationDigest}).Resolve(nil))
	require.True(t, read.Resolve(secrets))
	assert.Equal(t, configuration, read.Configuration)

	// Earlier versions kept all of it.
	text, err := json.Marshal(whole)
	require.NoError(t, err)
	assert.Equal(t, configuration, request.AppliedConfiguration(string(text)).Configuration)
	assert.JSONEq(t, request.ComparableApply(string(text)), request.ComparableApply(kept))

	for name, other := range map[string]request.Apply{
		"another configuration": applyRequest(configuration+"# changed\n", whole.Talosconfig),
		"another talosconfig":   applyRequest(configuration, "renewed"),
	} {
		text, err := other.Keep(secrets)
		require.NoError(t, err)
		assert.NotEqual(t, request.ComparableApply(kept), request.ComparableApply(text), name)
	}

	assert.Zero(t, request.AppliedConfiguration("not a request"))
	assert.Zero(t, request.AppliedConfiguration(`{"kept":"AAAA"}`))
}

// TestKeptLeaveRequest: the state keeps all of it, and that of an earlier version is read as well.
func TestKeptLeaveRequest(t *testing.T) {
	t.Parallel()

	secrets, err := talos.PlaceholderSecrets()
	require.NoError(t, err)

	authority, replaced := talos.SecretsAuthority(secrets, talos.TalosAuthority)
	require.Nil(t, replaced)

	whole := request.Leave{
		Common: applyRequest("", "").Common, Node: request.Node{Name: "one-general-1"}, Authority: &authority,
	}

	kept, err := whole.Keep()
	require.NoError(t, err)

	text, err := json.Marshal(whole)
	require.NoError(t, err)
	assert.Less(t, 3*len(kept), 2*len(text), "how much depends on the length of the certificate's serial number")

	opened, elsewhere, err := request.Open(kept)
	require.NoError(t, err)
	assert.False(t, elsewhere, "it runs without the program")
	assert.JSONEq(t, string(text), opened)

	for _, form := range []string{kept, string(text)} {
		read, err := request.ParseLeave(form)
		require.NoError(t, err)
		assert.Equal(t, whole, read)
	}

	_, _, err = request.Open(`{"kept":"AAAA"}`)
	require.EqualError(t, err, "it is damaged, or from a newer version of this program")
}

// TestStateOfThisForm: states have requests in this form, so that another dictionary would make them unreadable.
func TestStateOfThisForm(t *testing.T) {
	t.Parallel()

	const kept = `{"kept":"qia/wUjKUgul2lpAAAAA//8="}`

	opened, _, err := request.Open(kept)
	require.NoError(t, err)
	assert.JSONEq(t, `{"controlPlanes":[{"name":"one-cp-1","address":"10.0.0.10"}],"node":{"name":"one-general-1","address":""}}`, opened)
}
