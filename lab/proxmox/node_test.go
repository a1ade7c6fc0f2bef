package proxmox_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestHostInventory covers what no call of the recording does: a host's PCI devices, its router and name servers.
func TestHostInventory(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	gpu := map[string]any{
		"id": "0000:01:00.0", "class": "0x030000", "vendor": "0x10de", "device": "0x27b0", "iommugroup": 13.0,
	}

	devices := l.call(t, "GET", "/nodes/pve1/hardware/pci?verbose=0", nil)
	assert.Equal(t, []any{gpu}, devices.data, "bridges are hidden")

	all := l.call(t, "GET", "/nodes/pve1/hardware/pci?pci-class-blacklist=", nil)
	assert.Len(t, all.data, 2)
	assert.Contains(t, all.data.([]any)[1], "subsystem_device")
	assert.Equal(t, "AD104GL [RTX 4000 SFF Ada Generation]", all.data.([]any)[1].(map[string]any)["device_name"])

	assert.Equal(t, []any{}, l.call(t, "GET", "/nodes/pve2/hardware/pci", nil).data)
	assert.Equal(t, map[string]any{"dns1": "127.30.0.1"}, l.call(t, "GET", "/nodes/pve1/dns", nil).data)
	assert.Equal(t, map[string]any{}, l.call(t, "GET", "/nodes/pve2/dns", nil).data)

	bridges := l.call(t, "GET", "/nodes/pve1/network?type=any_bridge", nil).data.([]any)
	assert.Equal(t, "127.30.0.1", bridges[0].(map[string]any)["gateway"])
	assert.Equal(t, "127.30.0.11/24", bridges[0].(map[string]any)["cidr"])
}
