package components

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/enginetest"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/tokens"
	"talos-proxmox/internal/vmlookup"
)

// registerTalosCluster registers a cluster of which some machines existed before the run.
func registerTalosCluster(t *testing.T, cluster TalosClusterArgs, existing ...string) *enginetest.Recorder {
	t.Helper()

	return runKnownCluster(t, enginetest.Options{}, cluster, vmlookup.Run{Existed: func(name string) bool {
		return slices.Contains(existing, name)
	}})
}

// TestTalosIsUpgradedBeforeOtherChanges expects that existing machines wait for the upgrade and new ones do not.
func TestTalosIsUpgradedBeforeOtherChanges(t *testing.T) {
	t.Parallel()

	cluster := plannedCluster(1, 2)
	cluster.Upgrades = &TalosUpgrades{ParallelWorkers: 2, AllowDowngrade: true}
	cluster.Backup = &Backup{Directory: "~/backups", Recipients: []string{"age1"}, Keep: 3}
	r := registerTalosCluster(t, cluster, "one-cp-1", "one-general-1")

	command := r.ByType(tokens.LocalCommand)["one-talos"]
	assert.ElementsMatch(t, []string{"image-schematic", "one-secrets"}, command.DependsOn(), "no machine, nor a download")
	assert.Contains(t, command.Input("create").StringValue(), " upgrade")

	req := enginetest.RequestOf[request.Upgrade](t, command)
	assert.Equal(t, request.Node{Name: "one-cp-1", Address: netip.MustParseAddr("127.1.1.10")}, req.ControlPlanes[0])
	assert.Equal(t, request.Image{
		Node: "one-general-2", Talos: "v1.12.6",
		Installer: "factory.talos.dev/nocloud-installer/376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba:v1.12.6",
		Schematic: "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba",
	}, req.Images[2])
	assert.Equal(t, 2, req.ParallelWorkers)
	assert.True(t, req.AllowDowngrade)
	assert.Equal(t, enginetest.TalosconfigText, req.Talosconfig)
	assert.Equal(
		t, &request.Backup{Name: "one", Directory: "~/backups", Recipients: []string{"age1"}, Keep: 3}, req.Backup,
	)

	for name, waits := range map[string]bool{"one-cp-1-vm": true, "one-general-1-vm": true, "one-general-2-vm": false} {
		after := r.ByType(tokens.VirtualMachine)[name].DependsOn()
		assert.Equal(t, waits, slices.Contains(after, "one-kubernetes"), name)
	}

	require.NotEmpty(t, configurations(r))

	for name, apply := range configurations(r) {
		assert.Contains(t, apply.DependsOn(), "one-kubernetes", name)
	}
}

func TestUpgradeSettingsAreValidated(t *testing.T) {
	t.Parallel()

	cluster := plannedCluster(1, 0)
	cluster.Upgrades, cluster.Backup = &TalosUpgrades{ParallelWorkers: -1}, &Backup{}
	_, err := cluster.Validated("one")
	require.ErrorContains(t, err, "upgrades.parallelWorkers: -1 is not a number of workers; use 1 or more")
	require.ErrorContains(t, err, "backup.directory: is missing; set the folder that snapshots are kept in")
	require.ErrorContains(t, err, "backup.recipients: is empty; add the public key of age that snapshots are encrypted to")
}

func TestUnreachableClusterIsNotUpgraded(t *testing.T) {
	t.Parallel()

	nobody := []netip.Addr{netip.MustParseAddr("127.9.9.9"), netip.MustParseAddr("127.9.9.10")}
	err := awaitAnyNode(t.Context(), "one", "urn:pulumi:a::b::c::one-talos", nobody, 10*time.Millisecond)
	require.ErrorContains(t, err, `no node of cluster "one" answers, so that none can be upgraded: start its machines`)
	require.ErrorContains(t, err, "`pulumi up --replace 'urn:pulumi:a::b::c::one-talos'` continues without them")
}
