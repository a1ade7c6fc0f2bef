package request_test

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/request"
)

// TestTextOfAddresses: requests are in the states of stacks, so that another text would run every command again.
func TestTextOfAddresses(t *testing.T) {
	t.Parallel()

	address := netip.MustParseAddr("10.0.0.10")
	node := request.Node{Name: "one-cp-1", Address: address}

	for name, test := range map[string]struct {
		request any
		text    string
	}{
		"a node":                 {node, `{"name":"one-cp-1","address":"10.0.0.10"}`},
		"a node without address": {request.Node{Name: "one-cp-1"}, `{"name":"one-cp-1","address":""}`},
		"a change of an address": {
			request.Change{Common: request.Common{ControlPlanes: []request.Node{node}}, Node: node, Former: address},
			`{"controlPlanes":[{"name":"one-cp-1","address":"10.0.0.10"}],"node":{"name":"one-cp-1","address":"10.0.0.10"},` +
				`"former":"10.0.0.10","talosconfig":""}`,
		},
		"another change": {
			request.Change{}, `{"controlPlanes":null,"node":{"name":"","address":""},"talosconfig":""}`,
		},
		"a host": {
			request.Shell{Name: "pve1", Address: netip.MustParseAddr("fd00::2"), Port: 22, User: "root"},
			`{"name":"pve1","address":"fd00::2","port":22,"user":"root"}`,
		},
		"a host without address": {request.Shell{}, `{"name":"","address":"","port":0,"user":""}`},
		"endpoints": {
			request.Reconciled{Endpoints: []netip.Addr{address}},
			`{"kubeconfig":"","endpoints":["10.0.0.10"],"kind":"","asked":""}`,
		},
		"no endpoints": {request.Reconciled{}, `{"kubeconfig":"","kind":"","asked":""}`},
		"the status of a node": {
			request.NodeStatus{Name: "one-cp-1", Address: address, Role: "controlplane"},
			`{"name":"one-cp-1","address":"10.0.0.10","role":"controlplane","answers":false}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			text, err := json.Marshal(test.request)
			require.NoError(t, err)
			assert.Equal(t, test.text, string(text))
		})
	}
}
