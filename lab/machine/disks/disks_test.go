package disks_test

import (
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/machine/disks"
)

func TestInstallDisk(t *testing.T) {
	t.Parallel()

	all := disks.New([]datacentre.GuestDisk{
		{Interface: "ide2", Volume: "iso", CDROM: true},
		{Interface: "scsi1", Volume: "second", SizeBytes: 100e9},
		{Interface: "scsi0", Volume: "first", SizeBytes: 40e9},
		{Interface: "virtio0", Volume: "third", SizeBytes: 10e9},
	})

	for name, test := range map[string]struct {
		install, volume, message string
	}{
		"scsi0 is sda":                 {"disk: /dev/sda", "first", ""},
		"scsi1 is sdb":                 {"disk: /dev/sdb", "second", ""},
		"virtio0 is vda":               {"disk: /dev/vda", "third", ""},
		"a selector by size":           {"diskSelector:\n      size: '> 50GB'", "second", ""},
		"a selector that matches none": {"diskSelector:\n      size: '> 500GB'", "", "no disks matched the expression"},
		"a CD-ROM is no disk":          {"disk: /dev/sr0", "", "no such file or directory"},
		"a disk that is not there":     {"disk: /dev/nvme0n1", "", "lstat /dev/nvme0n1: no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			cfg, err := configloader.NewFromBytes(
				[]byte("machine:\n  type: worker\n  install:\n    " + test.install +
					"\ncluster:\n  controlPlane:\n    endpoint: https://127.9.0.11:6443\n"),
			)
			require.NoError(t, err)

			disk, err := all.ForInstall(t.Context(), cfg)
			if test.message != "" {
				assert.ErrorContains(t, err, test.message)

				return
			}

			require.NoError(t, err)
			assert.Equal(t, test.volume, disk.Volume)
		})
	}
}
