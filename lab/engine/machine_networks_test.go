package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/server"
)

// TestMachineNetworks: workers with a bond, VLANs and routes, which change while they run. A patch that takes the first
// card is refused before anything exists.
func TestMachineNetworks(t *testing.T) {
	t.Parallel()

	w := openWorld(t, server.Options{Speed: testSpeed, Bridges: []string{"vmbr1", "vmbr2"}})
	subnet := func(n int) string { return fmt.Sprintf("%s.%d", w.network, n) }
	s := w.stack(1, 1)
	c := &s.Clusters[0]
	links := func(mode, vlan, destination string) string {
		return "extraNICs: [{bridge: vmbr1, bond: bond0}, {bridge: vmbr2, bond: bond0}]\n" +
			"          vlans: [{id: 30, cidr: " + subnet(3) + ".0/24}]\n" +
			"          bonds: [{name: bond0, mode: " + mode + ", cidr: " + subnet(4) + ".0/24, vlans: [{id: " + vlan + ", cidr: " +
			subnet(5) + ".0/24, routes: [{destination: " + destination + ", gateway: " + subnet(5) + ".1, metric: 50}]}]}]"
	}

	c.WorkerYAML = links("active-backup", "31", "10.60.0.0/16") + "\n          patches: ['machine: {network: {interfaces: " +
		"[{interface: bond9, bond: {mode: active-backup, deviceSelectors: [{driver: virtio_net}]}}]}}']"
	_, err := w.tryUp(t.Context(), s.yaml(t))
	require.Error(t, err)
	assert.Contains(t, w.output(), "clusters[0].workers[0].patches[0]")
	assert.Contains(t, w.output(), "a member of bond9")
	assert.Empty(t, w.machines())

	c.WorkerYAML = links("active-backup", "31", "10.60.0.0/16")

	w.up(s.yaml(t))

	worker := subnet(1) + ".20"
	first := "ens18 " + worker + "/24, ens18.30 " + subnet(3) + ".20/24, bond0 " + subnet(4) + ".20/24, "

	addresses, bond, routes := w.machineNetwork(worker)
	assert.Equal(t, first+"bond0.31 "+subnet(5)+".20/24", addresses)
	assert.Equal(t, "active-backup of ens19 ens20", bond)
	assert.Contains(t, routes, "10.60.0.0/16 bond0.31 50")
	w.up(s.yaml(t), optup.ExpectNoChanges())

	c.WorkerYAML = links("balance-xor", "32", "10.61.0.0/16")
	booted := w.vm("one-general-1").Since
	done := w.up(s.yaml(t))
	assert.Empty(t, vms(done.withOp("update")))
	assert.Equal(t, booted, w.vm("one-general-1").Since, "Talos applies it without a restart")

	addresses, bond, routes = w.machineNetwork(worker)
	assert.Equal(t, first+"bond0.32 "+subnet(5)+".20/24", addresses)
	assert.Equal(t, "balance-xor of ens19 ens20", bond)
	assert.Contains(t, routes, "10.61.0.0/16 bond0.32 50")
	assert.NotContains(t, strings.Join(routes, "\n"), "10.60.0.0/16")
}

// machineNetwork returns what a machine reports: its links' addresses, the mode and the cards of its bond, its routes.
func (w *world) machineNetwork(address string) (addresses, bond string, routes []string) {
	w.t.Helper()

	w.withTalosClient(address, func(ctx context.Context, c *talosclient.Client) {
		links, err := safe.StateListAll[*network.LinkStatus](ctx, c.COSI)
		require.NoError(w.t, err)

		var cards []string

		for link := range links.All() {
			spec := link.TypedSpec()
			if spec.SlaveKind == network.LinkKindBond {
				cards = append(cards, link.Metadata().ID())

				assert.NotEmpty(w.t, spec.PermanentAddr)
			}

			if spec.Kind == network.LinkKindBond {
				bond = spec.BondMaster.Mode.String()
				assert.Equal(w.t, nethelpers.OperStateUp, spec.OperationalState)
			}
		}

		slices.Sort(cards)

		bond += " of " + strings.Join(cards, " ")

		list, err := safe.StateListAll[*network.AddressStatus](ctx, c.COSI)
		require.NoError(w.t, err)

		found := slices.SortedFunc(list.All(), func(a, b *network.AddressStatus) int {
			return a.TypedSpec().Address.Addr().Compare(b.TypedSpec().Address.Addr())
		})
		for i, a := range found {
			if i > 0 {
				addresses += ", "
			}

			addresses += a.TypedSpec().LinkName + " " + a.TypedSpec().Address.String()
		}

		all, err := safe.StateListAll[*network.RouteStatus](ctx, c.COSI)
		require.NoError(w.t, err)

		for r := range all.All() {
			spec := r.TypedSpec()
			routes = append(routes, fmt.Sprintf("%s %s %d", spec.Destination, spec.OutLinkName, spec.Priority))
		}
	})

	return addresses, bond, routes
}
