package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// TestEncryptedMachines brings up control planes with keys of their own UUID, and workers with a TPM and Secure Boot,
// refuses to change what protects them, and upgrades the workers.
func TestEncryptedMachines(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := w.stack(1, 1)
	s.Clusters[0].WorkerYAML = strings.Join([]string{
		"template: secure", "tpm: true", "encryption: {state: tpm, ephemeral: tpm}",
	}, "\n          ")
	file := strings.NewReplacer(
		"      network:\n", "      encryption: {state: nodeID, ephemeral: nodeID}\n      network:\n",
		"  talos-proxmox:clusters:\n",
		"    secure: {version: v1.14.3, datastore: local-lvm, secureBoot: true, extensions: [qemu-guest-agent], firstVmid: 930}\n"+
			"  talos-proxmox:clusters:\n",
	).Replace(s.yaml(t))

	w.up(file)
	w.requireProtected("10", "nodeID", false)
	w.requireProtected("20", "tpm", true)
	assert.Contains(t, w.vm("one-general-1").Config["tpmstate0"], "version=v2.0")
	assert.NotContains(t, w.vm("one-cp-1").Config, "tpmstate0")
	w.up(file, optup.Refresh(), optup.ExpectNoChanges())

	const byTPM, byNodeID = "{state: tpm, ephemeral: tpm}", "{state: nodeID, ephemeral: nodeID}"

	for name, change := range map[string][]string{
		"no encryption":    {byNodeID, "{state: nodeID}"},
		"another key":      {byTPM, "{state: tpm, ephemeral: nodeID}"},
		"no TPM":           {"tpm: true", "tpm: false", byTPM, byNodeID},
		"no secure images": {"secureBoot: true, ", "", byTPM, byNodeID},
	} {
		_, err := w.preview(strings.NewReplacer(change...).Replace(file))
		require.Error(t, err, name)
		assert.Contains(t, w.output(), "create machines with it in a pool of their own", name)
	}

	upgraded := strings.Replace(file, "v1.14.3", "v1.14.4", 1)
	w.up(upgraded)
	require.True(t, w.runsTalos("one-general-1", "v1.14.4"))
	w.requireProtected("20", "tpm", true)

	vm := w.vm("one-general-1")
	w.stopVM(vm.ID)
	require.NoError(t, w.lab.Data.SetConfig(labRoot, vm.Host, vm.ID, datacentre.Config{"delete": "tpmstate0"}))
	assert.Contains(t, w.outputOf(func() {
		_, err := w.preview(upgraded)
		require.NoError(t, err, w.output())
	}), "one-general-1 (VM 3000 on host "+vm.Host+") has lost its TPM in Proxmox")
}

// requireProtected requires that a machine's volumes are encrypted with a key, and whether it booted with Secure Boot.
func (w *world) requireProtected(address, key string, secureBoot bool) {
	w.t.Helper()

	w.withTalosClient(fmt.Sprintf("%s.1.%s", w.network, address), func(ctx context.Context, c *talosclient.Client) {
		for _, id := range []string{"STATE", "EPHEMERAL"} {
			volume, err := safe.StateGetByID[*block.VolumeStatus](ctx, c.COSI, id)
			require.NoError(w.t, err)
			assert.Equal(w.t, []string{key}, volume.TypedSpec().ConfiguredEncryptionKeys, id)
			assert.Equal(w.t, block.VolumePhaseReady, volume.TypedSpec().Phase, id)
		}

		state, err := safe.StateGetByID[*runtime.SecurityState](ctx, c.COSI, runtime.SecurityStateID)
		require.NoError(w.t, err)
		assert.Equal(w.t, secureBoot, state.TypedSpec().SecureBoot)
	})
}
