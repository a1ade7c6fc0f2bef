package components

import (
	"encoding/json"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/enginetest"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/tokens"
)

// TestHighAvailability: a machine gets it once it can leave its cluster, so that it loses it before that; control
// planes that are kept apart know each other.
func TestHighAvailability(t *testing.T) {
	t.Parallel()

	args := plannedCluster(2, 2)
	for i := range args.Nodes {
		if n := &args.Nodes[i]; n.Role == RoleControlPlane {
			n.Machine.HA = &HA{Apart: true}
		} else {
			n.Machine.HA = &HA{MaxRestart: 3, Hosts: []string{"pve1", "pve2"}}
		}
	}

	r := runCluster(t, enginetest.Options{}, args)
	commands := r.ByType(tokens.LocalCommand)

	requested := func(node ClusterNode) (found request.HA) {
		command, registered := commands[node.Name+"-ha"]
		require.True(t, registered)
		require.True(t, command.Input("stdin").IsSecret())
		require.NoError(t, json.Unmarshal([]byte(command.Input("stdin").SecretValue().Element.StringValue()), &found))
		assert.Contains(t, command.Input("delete").StringValue(), " ha --remove")

		var waitsFor []string
		for _, urn := range command.Request.GetDependencies() {
			waitsFor = append(waitsFor, resource.URN(urn).Name())
		}

		assert.Contains(t, waitsFor, node.Name+"-leave")

		return found
	}

	var controlPlanes []int

	for _, n := range args.Nodes {
		if n.Role == RoleControlPlane {
			controlPlanes = append(controlPlanes, n.Machine.VMID)
		}
	}

	for _, n := range args.Nodes {
		found := requested(n)
		assert.Equal(t, n.Machine.VMID, found.VMID)
		assert.Equal(t, 1, found.MaxRelocate, "the default")

		if n.Role == RoleControlPlane {
			assert.Equal(t, controlPlanes, found.Apart)
			assert.Regexp(t, `^talos-[0-9a-f]{16}-`+args.Name+`$`, found.ApartRule)
		} else {
			assert.Empty(t, found.Apart)
			assert.Equal(t, []string{"pve1", "pve2"}, found.Hosts)
		}
	}
}

func TestInvalidHighAvailabilityIsRefused(t *testing.T) {
	t.Parallel()

	assertRefused(t, func() TalosClusterArgs { return plannedCluster(1, 1) }, NewTalosCluster,
		map[string]invalidCase[TalosClusterArgs]{
			"too many tries": {
				func(a *TalosClusterArgs) { a.Nodes[1].Machine.HA = &HA{MaxRestart: 11} },
				"nodes[1].machine.ha.maxRestart: 11 is not a number of tries; use 1 to 10",
			},
			"a device of the host": {
				func(a *TalosClusterArgs) {
					a.Nodes[1].Machine.HA, a.Nodes[1].Machine.PCIDevices = &HA{}, []PCIDevice{{ID: "0000:01:00"}}
				},
				"nodes[1].machine.ha: is for machines that any host can start, and this one has a device of its host",
			},
		})
}
