package stacks

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/tokens"
	"talos-proxmox/internal/vmdiff"
)

// TestDeparturesThatTheClusterDecides: Proxmox is asked only about a machine that the cluster does not list
// (TestARemovalIsCutAfterItsNodesLeft).
func TestDeparturesThatTheClusterDecides(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		bootstrapped bool
		found        request.MembersResult
		reason       string
	}{
		"a member": {
			bootstrapped: true,
			found:        request.MembersResult{HasData: []string{"one-cp-1"}, Listed: true, Present: []string{"one-cp-3"}},
			reason:       "it is a member of etcd, or registered in Kubernetes",
		},
		"a member of a cluster whose first run was killed before the state had its bootstrap": {
			found:  request.MembersResult{HasData: []string{"one-cp-1"}, Listed: true, Present: []string{"one-cp-3"}},
			reason: "it is a member of etcd, or registered in Kubernetes",
		},
		"a cluster that was never begun":         {found: request.MembersResult{Waiting: []string{"one-cp-1"}}},
		"a first run whose machines do not boot": {},
		"a first run whose cluster lists nobody": {
			found:  request.MembersResult{HasData: []string{"one-cp-1"}},
			reason: "no control plane says whether it belongs to the cluster",
		},
		"a cluster that does not answer": {
			bootstrapped: true, reason: "no control plane says whether it belongs to the cluster",
		},
		"a cluster that has lost etcd": {
			bootstrapped: true, found: request.MembersResult{Waiting: []string{"one-cp-1"}},
			reason: "no control plane says whether it belongs to the cluster",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			d := &deployment{lastRun: newLastRun()}
			if test.bootstrapped {
				d.lastRun.resources[tokens.LocalCommand+"::one"+tokens.OfBootstrap] = true
			}

			m := vmdiff.Machine{Name: "one-cp-3", Cluster: "one", ControlPlane: true, CannotLeave: noLeaveCommand}
			d.judgeDeparture(t.Context(), &m, test.found)
			assert.Equal(t, test.reason, m.CannotLeave)
			assert.False(t, m.Departed)
		})
	}
}
