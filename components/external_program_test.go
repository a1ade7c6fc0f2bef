package components_test

import (
	"net/netip"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components"
	"talos-proxmox/internal/enginetest"
	"talos-proxmox/internal/tokens"
)

// oneNode is the program of another project: a cluster of one node, using only exports of this package.
func oneNode(ctx *pulumi.Context) error {
	talos := components.Talos{Version: "v1.12.6", Extensions: []string{"qemu-guest-agent"}}

	image, err := components.NewTalosImage(ctx, "talos", components.TalosImageArgs{
		Talos: talos, Stores: []components.ImageStore{{Host: "pve1", Datastore: "local"}},
	})
	if err != nil {
		return err
	}

	template, err := components.NewGoldenTemplate(ctx, "talos-pve1", components.GoldenTemplateArgs{
		Host: "pve1", VMID: 901, Talos: &talos, Image: image.VolumeID("pve1", "local"),
		Shell: &components.HostShell{Address: netip.MustParseAddr("10.0.0.2")},
	})
	if err != nil {
		return err
	}

	cluster, err := components.NewTalosCluster(ctx, "one", components.TalosClusterArgs{
		Network: components.Network{CIDR: netip.MustParsePrefix("10.0.0.0/24"), Gateway: netip.MustParseAddr("10.0.0.1")},
		Nodes: []components.ClusterNode{{
			Name: "one-cp-1", Role: components.RoleControlPlane, Address: netip.MustParsePrefix("10.0.0.10/24"), Talos: talos,
			Machine: components.Machine{Host: "pve1", VMID: 2000, MAC: "02:00:00:00:0a:00", Template: template.VMID},
		}},
	})
	if err != nil {
		return err
	}

	ctx.Export("kubeconfig", cluster.Kubeconfig)

	return nil
}

func TestClusterOfAnotherProgram(t *testing.T) {
	t.Parallel()

	for name, preview := range map[string]bool{"up": false, "preview": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			r, err := enginetest.Run(enginetest.Options{Preview: preview}, oneNode)
			require.NoError(t, err)

			vm := r.ByType(tokens.VirtualMachine)["one-cp-1-vm"]
			assert.Equal(t, []string{"talos-pve1-build"}, vm.DependsOn())

			for property, value := range map[string]any{
				"clone.vmId":               901.0,
				"cpu.cores":                2.0,
				"memory.dedicated":         4096.0,
				"disks[0].datastoreId":     "local-lvm",
				"onBoot":                   true,
				"networkDevices[0].bridge": "vmbr0",
				"agent.enabled":            true,
				"initialization.ipConfigs[0].ipv4.address": "10.0.0.10/24",
			} {
				assert.Equal(t, value, vm.Input(property).V, property)
			}

			assert.Equal(t, "https://10.0.0.10:6443", r.Outputs("one")["endpoint"].StringValue())
			assert.Equal(
				t, []string{"one-bootstrap", "one-cp-1-configuration", "one-cp-1-leave", "one-healthy", "one-kubernetes", "one-marked", "one-talos"},
				r.Names(tokens.LocalCommand),
			)
		})
	}
}

func TestComponentsNeedTalosops(t *testing.T) {
	t.Setenv("TALOSOPS", "/nowhere/talosops")

	for name, program := range map[string]pulumi.RunFunc{
		"cluster": oneNode,
		"host": func(ctx *pulumi.Context) error {
			_, err := components.NewProxmoxHostPrep(ctx, "pve1", components.ProxmoxHostPrepArgs{
				Host: "pve1", Shell: components.HostShell{Address: netip.MustParseAddr("10.0.0.2")},
			})

			return err
		},
	} {
		r, err := enginetest.Run(enginetest.Options{}, program)
		require.ErrorContains(t, err, "unable to find talosops", name)
		require.ErrorContains(t, err, "/nowhere/talosops", name)
		assert.Empty(t, r.ByType(tokens.VirtualMachine), name)
	}
}
