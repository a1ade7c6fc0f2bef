package datacentre_test

import (
	"cmp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// TestRefusedMigration checks PVE's messages and that the VM stays on its host.
func TestRefusedMigration(t *testing.T) {
	t.Parallel()

	all := datacentre.Config{"target": "pve2", "online": "1", "with-local-disks": "1"}

	for name, tc := range map[string]struct {
		vmid    int // 100 by default
		more    datacentre.Config
		running bool
		request datacentre.Config
		refused string
		logged  string
	}{
		"to its own host": {request: datacentre.Config{"target": "pve1"}, refused: "target is local node."},
		"to an unknown host": {
			request: datacentre.Config{"target": "pve9"}, refused: "no such cluster node 'pve9'",
		},
		"running, without online": {
			running: true,
			request: datacentre.Config{"target": "pve2"},
			refused: "can't migrate running VM without --online",
		},
		"running, without its disks": {
			running: true, request: datacentre.Config{"target": "pve2", "online": "1"},
			logged: "ERROR: can't migrate local disk 'local-lvm:vm-100-disk-0': can't live migrate attached local disks without with-local-disks option",
		},
		"with an ISO of its host": {
			more: datacentre.Config{"ide0": "local:iso/talos.iso,media=cdrom"}, request: all,
			logged: "ERROR: can't migrate local disk 'local:iso/talos.iso': local cdrom image",
		},
		"with a device of its host": {
			more:    datacentre.Config{"hostpci0": "0000:01:00"},
			request: all,
			logged:  "ERROR: can't migrate VM which uses local devices: hostpci0",
		},
		"with a volume of another VMID": {
			more: datacentre.Config{"virtio1": "local-lvm:vm-999999999-data.raw"}, request: all,
			logged: "ERROR: can't migrate local disk 'local-lvm:vm-999999999-data.raw': owned by other VM (owner = VM 999999999)",
		},
		"a linked clone": {
			vmid:    101,
			request: all,
			logged:  "ERROR: can't migrate 'local-zfs:base-900-disk-0/vm-101-disk-0' as it's a clone of 'local-zfs:base-900-disk-0'",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			d := open(t, fastOptions(t))
			do := requireOK(t, d)
			do(
				d.Download(
					root, "pve1", "local",
					datacentre.Config{"url": "https://factory.lab/talos", "content": "iso", "filename": "talos.iso"},
				),
			)
			_, err := d.AllocateVolume(t.Context(), "pve1", "local-lvm", "vm-999999999-data.raw", 999999999, datacentre.GiB)
			require.NoError(t, err)
			do(d.CreateVM(root, "pve1", 100, basicVM(tc.more)))
			createTemplate(t, d, 900, "local-zfs")
			do(d.CloneVM(root, "pve1", 900, datacentre.Config{"newid": "101"}))

			if tc.running {
				do(d.Start(root, "pve1", 100))
			}

			upid, err := d.Migrate(root, "pve1", cmp.Or(tc.vmid, 100), tc.request)
			if tc.refused != "" {
				require.ErrorContains(t, err, tc.refused)
			} else {
				assert.Equal(t, "migration aborted", exitStatus(t, d, upid, err))
				assert.Contains(t, d.TaskLog(upid), tc.logged)
			}

			for _, vm := range d.VMs() {
				assert.Equal(t, "pve1", vm.Host)
			}

			assert.Empty(t, d.Volumes("pve2", "local-lvm", ""))
			assert.Empty(t, d.Volumes("pve2", "local-zfs", ""))
		})
	}
}
