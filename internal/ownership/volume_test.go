package ownership_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/internal/ownership"
)

func TestVolumes(t *testing.T) {
	t.Parallel()

	stack := ownership.Of("acme", "talos-proxmox", "prod", "9f86d081884c7d65")
	data := stack.VolumeFor("prod-general-1", "data")
	assert.Equal(t, "vm-999999999-9f86d081884c7d65-prod-general-1-data.raw", data.File())

	for _, id := range []string{
		data.File(), "local-lvm:" + data.File(), "999999999/" + data.File(), "local:999999999/" + data.File(),
	} {
		found, is := ownership.VolumeOf(id)
		assert.True(t, is, id)
		assert.Equal(t, data, found, id)
	}

	for _, id := range []string{
		"", "local-lvm:vm-3000-disk-0", "local-lvm:vm-9999-pvc-1.raw", "local-lvm:vm-999999999-disk-0", "local-lvm:x" + data.File(),
	} {
		_, is := ownership.VolumeOf(id)
		assert.False(t, is, id)
	}

	nameless := ownership.Of("acme", "talos-proxmox", "prod", "")
	assert.Equal(t, nameless.VolumeFor("a", "data"), nameless.VolumeFor("a", "data"))
	assert.NotEqual(t, nameless.VolumeFor("a", "data"), ownership.Of("acme", "talos-proxmox", "test", "").VolumeFor("a", "data"))
	assert.Len(t, nameless.VolumeFor("a", "data").StackID, 16)
}
