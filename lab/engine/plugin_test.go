package engine_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/plugin"
	"talos-proxmox/lab/server"
)

// pluginName is the program that serves the components.
const pluginName = "pulumi-resource-talos-proxmox"

// remoteComponent is a component of a generated SDK, which knows only the project's schema.
type remoteComponent struct {
	pulumi.ResourceState

	VMID        pulumi.IntOutput       `pulumi:"vmid"`
	VolumeIDs   pulumi.StringMapOutput `pulumi:"volumeIds"`
	Kubeconfig  pulumi.StringOutput    `pulumi:"kubeconfig"`
	Differences pulumi.StringMapOutput `pulumi:"differences"`
	Endpoint    pulumi.StringOutput    `pulumi:"endpoint"`
}

func newRemoteComponent(ctx *pulumi.Context, token, name string, inputs pulumi.Map) (*remoteComponent, error) {
	component := &remoteComponent{}

	return component, ctx.RegisterRemoteComponentResource(token, name, inputs, component, pulumi.Version(plugin.Version))
}

// foreignProgram uses the components from the plugin: a control plane and a worker.
func foreignProgram(network string, host server.HostConnection, key string) pulumi.RunFunc {
	talos := pulumi.Map{
		"version": pulumi.String("v1.14.4"), "extensions": pulumi.StringArray{pulumi.String("qemu-guest-agent")},
	}

	return func(ctx *pulumi.Context) error {
		image, err := newRemoteComponent(ctx, "talos-proxmox:image:TalosImage", "talos", pulumi.Map{
			"talos":  talos,
			"stores": pulumi.Array{pulumi.Map{"host": pulumi.String(host.Name), "datastore": pulumi.String("local")}},
		})
		if err != nil {
			return err
		}

		template, err := newRemoteComponent(ctx, "talos-proxmox:template:GoldenTemplate", "talos-pve1", pulumi.Map{
			"host": pulumi.String(host.Name), "vmid": pulumi.Int(901), "talos": talos,
			"image": image.VolumeIDs.MapIndex(pulumi.String(host.Name + "/local")),
			"shell": pulumi.Map{
				"address": pulumi.String(host.Address), "port": pulumi.Int(host.Port), "hostKey": pulumi.String(host.HostKey),
				"privateKey": pulumi.ToSecret(pulumi.String(key)),
			},
		})
		if err != nil {
			return err
		}

		node := func(name, role, address, mac string, vmid int) pulumi.Map {
			return pulumi.Map{
				"name": pulumi.String(name), "role": pulumi.String(role), "address": pulumi.String(network + address),
				"talos": talos, "machine": pulumi.Map{
					"host": pulumi.String(host.Name), "vmid": pulumi.Int(vmid), "mac": pulumi.String(mac), "template": template.VMID,
				},
			}
		}

		cluster, err := newRemoteComponent(ctx, "talos-proxmox:cluster:TalosCluster", "one", pulumi.Map{
			"network": pulumi.Map{
				"cidr": pulumi.String(network + ".1.0/24"), "gateway": pulumi.String(network + ".1.1"),
				"dns": pulumi.StringArray{pulumi.String(network + ".1.1")},
			},
			"nodes": pulumi.Array{
				node("one-cp-1", "controlplane", ".1.10/24", "02:00:00:00:0a:00", 2000),
				node("one-worker-1", "worker", ".1.20/24", "02:00:00:00:0b:00", 3000),
			},
			"factoryUrl": pulumi.String("https://factory.talos.dev"),
		})
		if err != nil {
			return err
		}

		ctx.Export("kubeconfig", cluster.Kubeconfig)
		ctx.Export("differences", cluster.Differences)

		return nil
	}
}

// TestServedComponents creates a cluster as a program in another language does: it uses only the plugin, which the
// engine starts.
func TestServedComponents(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	w.installPlugin()

	connection, err := w.lab.Connection()
	require.NoError(t, err)

	w.options.Program = foreignProgram(w.network, connection.Hosts[0], connection.PrivateKey)

	done := w.up(programStack)
	assert.Contains(t, done.withOp("create"), "TalosCluster one")
	assert.Equal(t, map[string]int{"one-cp-1": 2000, "one-worker-1": 3000}, w.machines())
	w.requireRunning(2)
	assert.Empty(t, w.outputs()["differences"].Value)
	assert.Contains(t, w.outputs()["kubeconfig"].Value, "client-key-data")
	assert.True(t, w.outputs()["kubeconfig"].Secret)

	assert.Contains(t, w.dependenciesOf(programStack, "one-worker-1-vm"), "talos-pve1", "clones are deleted before their template")

	assert.Empty(t, w.up(programStack, optup.ExpectNoChanges()))

	w.destroy(programStack)
	w.requireEmpty()
}

// dependenciesOf returns the names of a resource's dependencies in the state.
func (w *world) dependenciesOf(stack, name string) (names []string) {
	w.t.Helper()

	for _, r := range w.deployment(stack).Resources {
		if r.URN.Name() == name {
			for _, dependency := range r.Dependencies {
				names = append(names, dependency.Name())
			}
		}
	}

	return names
}

// installPlugin installs the plugin where engines find it.
func (w *world) installPlugin() {
	w.t.Helper()

	require.FileExists(w.t, toolPath(pluginName), "`make test` builds it")

	folder := filepath.Join(w.dir, "pulumi", "plugins", "resource-"+plugin.Name+"-v"+plugin.Version)
	require.NoError(w.t, os.MkdirAll(folder, 0o700))
	require.NoError(w.t, os.Symlink(toolPath(pluginName), filepath.Join(folder, pluginName)))
}
