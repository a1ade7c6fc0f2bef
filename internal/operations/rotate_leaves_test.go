package operations

import (
	"context"
	"encoding/json"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/recovery"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/tokens"
)

// addLeave adds the leave command of a node to the state.
func (r *rotationStack) addLeave(req request.Leave) {
	r.t.Helper()

	var state struct {
		Version    int                         `json:"version"`
		Deployment map[string][]map[string]any `json:"deployment"`
	}
	require.NoError(r.t, json.Unmarshal([]byte(r.state), &state))

	properties := object{"delete": "talosops leave", "stdin": r.secret(r.json(req))}
	state.Deployment["resources"] = append(state.Deployment["resources"], map[string]any{
		"urn":    "urn:pulumi:lab::p::talos-proxmox:cluster:TalosCluster$" + tokens.LocalCommand + "::" + req.Node.Name + tokens.OfLeave,
		"parent": "urn:pulumi:lab::p::talos-proxmox:cluster:TalosCluster::lab",
		"type":   tokens.LocalCommand, "inputs": properties, "outputs": properties,
	})
	r.state = r.json(state)
}

// leaveOf returns a leave request of the state; inputs and outputs have the same.
func (r *rotationStack) leaveOf(name string) (req request.Leave) {
	r.t.Helper()

	_, deployment, err := recovery.ReadState(r.t.Context(), r.Pulumi, r.Stack, "--show-secrets")
	require.NoError(r.t, err)

	for _, resource := range deployment.Resources {
		if resource.URN.Name() != name+tokens.OfLeave {
			continue
		}

		text, _ := recovery.Reveal(resource.Inputs)["stdin"].(string)
		assert.Equal(r.t, text, recovery.Reveal(resource.Outputs)["stdin"])

		req, err = request.ParseLeave(text)
		require.NoError(r.t, err)
	}

	return req
}

// TestARotationRenewsLeaveRequests: a removed node leaves with the request in the state, which no run may have renewed
// since the rotation. Until the rotation is done, machines know the former authority only.
func TestARotationRenewsLeaveRequests(t *testing.T) {
	t.Parallel()

	r := newRotationStack(t)
	common := request.Common{Timeout: "30m", ControlPlanes: []request.Node{{Name: "lab-cp-1", Address: netip.MustParseAddr("127.0.0.11")}}}
	former := talos.Authority{Certificate: []byte("former"), Key: []byte("key")}
	r.addLeave(request.Leave{Common: common, Node: request.Node{Name: "lab-general-1"}, Authority: &former})
	r.addLeave(request.Leave{
		Common: common, Node: request.Node{Name: "lab-general-2"}, Talosconfig: "of an earlier version",
	})

	imports := r.Pulumi
	interrupted := r.state
	r.Pulumi = func(ctx context.Context, in io.Reader, args ...string) ([]byte, error) {
		out, err := imports(ctx, in, args...)
		if args[1] == "import" && interrupted != "" && strings.Contains(r.state, tokens.OfLeave) {
			interrupted = ""

			assert.Equal(t, &former, r.leaveOf("lab-general-1").Authority)
			assert.Equal(t, "of an earlier version", r.leaveOf("lab-general-2").Talosconfig)
		}

		return out, err
	}

	require.NoError(t, r.RotateAuthority(t.Context(), "lab", talos.TalosAuthority, time.Now()))
	assert.Empty(t, interrupted, "the state was checked in between")

	issuing, _, _ := r.authorities(talos.TalosAuthority)

	for _, name := range []string{"lab-general-1", "lab-general-2"} {
		leave := r.leaveOf(name)
		require.NotNil(t, leave.Authority, name)
		assert.Equal(t, issuing, string(leave.Authority.Certificate))
		assert.Empty(t, leave.Talosconfig)
		assert.Equal(t, common, leave.Common)
	}
}
