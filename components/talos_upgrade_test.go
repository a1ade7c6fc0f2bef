package components

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/enginetest"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/tokens"
	"talos-proxmox/internal/vmlookup"
)

// runTalos registers a cluster of which some machines ran before, whose image comes from another resource.
func runTalos(t *testing.T, cluster TalosClusterArgs, ran ...string) *enginetest.Recorder {
	t.Helper()

	r, err := enginetest.Run(enginetest.Options{}, func(ctx *pulumi.Context) error {
		made, err := templates(ctx, plannedTemplate("pve1"), plannedTemplate("pve2"))
		if err != nil {
			return err
		}

		for i := range cluster.Nodes {
			cluster.Nodes[i].Machine.Template = made[cluster.Nodes[i].Machine.Node].VMID
		}

		image, err := NewTalosImage(ctx, "image", TalosImageArgs{
			Talos: Talos{Version: "v1.12.6"}, Stores: []ImageStore{{Node: "pve1", Datastore: "local"}},
		})
		if err != nil {
			return err
		}

		cluster.Schematics = pulumi.StringArray{image.SchematicID}
		ctx = vmlookup.With(ctx, vmlookup.Run{Ran: func(name string) bool {
			return slices.Contains(ran, name)
		}})

		_, err = NewTalosCluster(ctx, cluster.Name, cluster)

		return err
	})
	require.NoError(t, err)

	return r
}

// TestTalosIsUpgradedBeforeAnythingElseOfAMachineThatRuns: new machines are made in the meantime.
func TestTalosIsUpgradedBeforeAnythingElseOfAMachineThatRuns(t *testing.T) {
	t.Parallel()

	cluster := plannedCluster(1, 2)
	cluster.Upgrades = &TalosUpgrades{ParallelWorkers: 2, AllowDowngrade: true}
	cluster.Backup = &Backup{Directory: "~/backups", Recipients: []string{"age1"}, Keep: 3}
	r := runTalos(t, cluster, "one-cp-1", "one-general-1")

	command := r.Of(tokens.LocalCommand)["one-talos"]
	assert.ElementsMatch(t, []string{"image-schematic", "one-secrets"}, command.DependsOn(), "no machine, nor a download")
	assert.Contains(t, command.Input("create").StringValue(), " upgrade")

	asked := enginetest.Asked[request.Upgrade](t, command)
	assert.Equal(t, request.Node{Name: "one-cp-1", Address: "127.1.1.10"}, asked.ControlPlanes[0])
	assert.Equal(t, request.Image{
		Node: "one-general-2", Talos: "v1.12.6",
		Installer: "factory.talos.dev/nocloud-installer/376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba:v1.12.6",
		Schematic: "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba",
	}, asked.Images[2])
	assert.Equal(t, 2, asked.ParallelWorkers)
	assert.True(t, asked.AllowDowngrade)
	assert.Equal(t, enginetest.TalosconfigText, asked.Talosconfig)
	assert.Equal(
		t, &request.Backup{Name: "one", Directory: "~/backups", Recipients: []string{"age1"}, Keep: 3}, asked.Backup,
	)

	for name, waits := range map[string]bool{"one-cp-1-vm": true, "one-general-1-vm": true, "one-general-2-vm": false} {
		after := r.Of(tokens.VirtualMachine)[name].DependsOn()
		assert.Equal(t, waits, slices.Contains(after, "one-kubernetes"), name)
	}

	for name, apply := range r.Of(tokens.ConfigurationApply) {
		assert.Contains(t, apply.DependsOn(), "one-kubernetes", name)
	}
}

func TestUpgradesAreJudged(t *testing.T) {
	t.Parallel()

	cluster := plannedCluster(1, 0)
	cluster.Upgrades, cluster.Backup = &TalosUpgrades{ParallelWorkers: -1}, &Backup{}
	_, err := cluster.Checked("one")
	require.ErrorContains(t, err, "upgrades.parallelWorkers: -1 is not a number of workers; use 1 or more")
	require.ErrorContains(t, err, "backup.directory: is missing; set the folder that snapshots are kept in")
	require.ErrorContains(t, err, "backup.recipients: is empty; add the public key of age that snapshots are encrypted to")
}

func TestAClusterThatWasBegunAndIsSilentIsNotUpgraded(t *testing.T) {
	t.Parallel()

	nobody := []netip.Addr{netip.MustParseAddr("127.9.9.9"), netip.MustParseAddr("127.9.9.10")}
	err := there(t.Context(), "one", "urn:pulumi:a::b::c::one-talos", nobody, 10*time.Millisecond)
	require.ErrorContains(t, err, `no node of cluster "one" answers, so that none can be upgraded: start its machines`)
	require.ErrorContains(t, err, "`pulumi up --replace 'urn:pulumi:a::b::c::one-talos'` continues without them")
}
