package proxmox_test

import (
	"testing"
	"time"

	client "github.com/luthermonson/go-proxmox"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestGoProxmox takes a machine through its life cycle with a third-party client.
func TestGoProxmox(t *testing.T) {
	t.Parallel()

	for name, login := range map[string]client.Option{
		"with a token":    client.WithAPIToken("root@pam!lab", "secret"),
		"with a password": client.WithCredentials(&client.Credentials{Username: "root@pam", Password: password}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t)
			ctx := t.Context()
			c := client.NewClient(l.url, client.WithHTTPClient(l.http), login)
			wait := func(task *client.Task, err error) {
				t.Helper()
				require.NoError(t, err)
				require.NoError(t, task.Wait(ctx, 5*time.Millisecond, time.Minute))
				require.True(t, task.IsSuccessful, task.ExitStatus)
			}

			version, err := c.Version(ctx)
			require.NoError(t, err)
			assert.Equal(t, "9.2", version.Release)

			cluster, err := c.Cluster(ctx)
			require.NoError(t, err)
			assert.Equal(t, "lab", cluster.Name)
			assert.Len(t, cluster.Nodes, 2)

			node, err := c.Node(ctx, "pve1")
			require.NoError(t, err)
			assert.Equal(t, 8, node.CPUInfo.CPUs)

			id, err := cluster.NextID(ctx)
			require.NoError(t, err)
			require.Equal(t, 100, id)

			wait(node.NewVirtualMachine(ctx, id,
				client.VirtualMachineOption{Name: "name", Value: "template"},
				client.VirtualMachineOption{Name: "memory", Value: 1024},
				client.VirtualMachineOption{Name: "scsi0", Value: "local-lvm:4"},
				client.VirtualMachineOption{Name: "net0", Value: "virtio,bridge=vmbr0"}))

			template, err := node.VirtualMachine(ctx, id)
			require.NoError(t, err)
			wait(template.ConvertToTemplate(ctx))

			newID, task, err := template.Clone(ctx, &client.VirtualMachineCloneOptions{Full: true, Name: "node"})
			wait(task, err)
			require.Equal(t, 101, newID)

			vm, err := node.VirtualMachine(ctx, newID)
			require.NoError(t, err)
			wait(
				vm.Config(
					ctx, client.VirtualMachineOption{Name: "cores", Value: 2},
					client.VirtualMachineOption{Name: "onboot", Value: true},
				),
			)
			wait(vm.ResizeDisk(ctx, "scsi0", "+1G"))
			wait(vm.Start(ctx))
			require.NoError(t, vm.Ping(ctx))
			assert.True(t, vm.IsRunning())
			assert.Equal(t, uint64(5)<<30, vm.MaxDisk)
			assert.Equal(t, 2, vm.CPUs)

			vm, err = node.VirtualMachine(ctx, newID)
			require.NoError(t, err)
			assert.Equal(t, new(2), vm.VirtualMachineConfig.Cores)
			assert.Equal(t, "node", vm.VirtualMachineConfig.Name)

			resources, err := cluster.Resources(ctx, "vm")
			require.NoError(t, err)
			assert.Len(t, resources, 2)

			all, err := cluster.Resources(ctx)
			require.NoError(t, err)
			assert.Greater(t, len(all), len(resources))

			storage, err := node.Storage(ctx, "local-lvm")
			require.NoError(t, err)
			assert.Equal(t, 1, storage.Active)

			tasks, err := cluster.Tasks(ctx)
			require.NoError(t, err)
			assert.NotEmpty(t, tasks)

			wait(vm.Reset(ctx))
			wait(vm.Stop(ctx))
			require.NoError(t, vm.Ping(ctx))
			assert.True(t, vm.IsStopped())
			wait(vm.Delete(ctx, nil))

			_, err = node.VirtualMachine(ctx, newID)
			require.ErrorContains(t, err, "does not exist")
		})
	}
}
