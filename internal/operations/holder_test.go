package operations

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/scripttest"
)

// TestRunHolders: clusters are asked with a client of the authority in the state, whatever became of the outputs.
func TestRunHolders(t *testing.T) {
	t.Parallel()

	b, lastRequest := newBackups(t, nil)

	live, unknown, err := b.RunHolders(t.Context())
	require.NoError(t, err)
	assert.Empty(t, live, "it was not created yet")
	assert.Empty(t, unknown)

	b.Deployed = withState(t, b.Deployed)
	_, unknown, err = b.RunHolders(t.Context())
	require.NoError(t, err)
	assert.Empty(t, unknown)

	call := lastRequest()
	assert.Equal(t, "holder", call[0])

	var sent request.Holder
	require.NoError(t, json.Unmarshal([]byte(call[1]), &sent))
	assert.Equal(t, []string{"os:admin"}, clientRoles(t, sent.Talosconfig))
	assert.Len(t, sent.ControlPlanes, 3)

	scripttest.Program(t, b.TalosOps, "#!/bin/sh\necho '{\"holder\": \"ann@desk (process 7) brings stack lab up\"}'\n")

	live, _, err = b.RunHolders(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"cluster lab: ann@desk (process 7) brings stack lab up"}, live)

	scripttest.Program(t, b.TalosOps, "#!/bin/sh\nexit 1\n")

	_, unknown, err = b.RunHolders(t.Context())
	require.NoError(t, err)
	assert.Len(t, unknown, 1)
}
