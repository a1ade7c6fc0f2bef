package talos_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/internal/talos"
)

func TestDirectoryVolumes(t *testing.T) {
	t.Parallel()

	assert.Equal(t, []string{"local", "more"}, talos.DirectoryVolumes([]string{
		"machine: {install: {disk: /dev/sda}}",
		"{apiVersion: v1alpha1, kind: UserVolumeConfig, name: local, volumeType: directory}",
		"kind: UserVolumeConfig\nname: data\nprovisioning: {}\n---\nkind: UserVolumeConfig\nname: more\nvolumeType: directory\n",
		"not: [yaml",
	}))
}
