package spec_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/spec"
)

// TestLinkAddresses: what other guests see of the addresses inside machines, with the VLANs that these tag themselves.
func TestLinkAddresses(t *testing.T) {
	t.Parallel()

	plan, err := spec.Load(values(t, readFile(t, "testdata/plans/links.yaml")), options())
	require.NoError(t, err)

	found := map[string][]string{}

	for _, m := range plan.Members() {
		for _, link := range m.LinkAddresses(m.Network) {
			found[m.Name] = append(found[m.Name], fmt.Sprint(link.Path, " ", link.Address, " ", link.Bridge, " ", link.VLAN))
		}
	}

	assert.Equal(t, []string{
		"clusters[0].workers[0].vlans[0] 10.0.30.50/24 vmbr0 30", "clusters[0].workers[0].bonds[0] 10.1.0.20/24 vmbr1 0",
		"clusters[0].workers[0].bonds[0].vlans[0] 10.2.0.20/24 vmbr1 32",
	}, found["prod-storage-1"])
	assert.Equal(t, []string{"clusters[0].controlPlane.extraNICs[0].vlans[0] 10.0.40.11/24 vmbr1 40"}, found["prod-cp-2"])
	assert.Equal(t, []string{"clusters[0].workers[1].bonds[0].vlans[0] 10.9.0.20/24 vmbr1 90"}, found["prod-far-1"])
}
