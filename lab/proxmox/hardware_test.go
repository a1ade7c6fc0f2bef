package proxmox_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHardwareOfAHost(t *testing.T) {
	t.Parallel()

	l := newLab(t)

	assert.JSONEq(t,
		`{"data":[{"id":"0000:01:00.0","class":"0x030000","vendor":"0x10de","device":"0x27b0","iommugroup":13,"vendor_name":"NVIDIA Corporation",
		"device_name":"AD104GL [RTX 4000 SFF Ada Generation]","subsystem_vendor":"0x10de","subsystem_device":"0x16fa","subsystem_vendor_name":"NVIDIA Corporation"}]}`,
		l.call(t, "GET", "/nodes/pve1/hardware/pci", nil).raw, "bridges are left out")
	assert.Len(t, l.call(t, "GET", "/nodes/pve1/hardware/pci?pci-class-blacklist=05", nil).data, 2)
	assert.JSONEq(t,
		`{"data":[{"id":"0000:01:00.0","class":"0x030000","vendor":"0x10de","device":"0x27b0","iommugroup":13}]}`,
		l.call(t, "GET", "/nodes/pve1/hardware/pci?verbose=0", nil).raw)

	status, _ := l.call(t, "GET", "/nodes/pve1/status", nil).data.(map[string]any)
	assert.Equal(t, map[string]any{"mode": "efi", "secureboot": 0.0}, status["boot-info"])
	assert.Contains(t, status["kversion"], "Linux 6.17.2-1-pve #1 SMP")

	pools, _ := l.call(t, "GET", "/nodes/pve1/disks/zfs", nil).data.([]any)
	require.Len(t, pools, 1)
	assert.Equal(t, "ONLINE", pools[0].(map[string]any)["health"])
	assert.JSONEq(t, `{"data":[]}`, l.call(t, "GET", "/nodes/pve2/disks/zfs", nil).raw)
}

func TestMappingsAreChecked(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	checks := func(node string) any {
		list, _ := l.call(t, "GET", "/cluster/mapping/pci?check-node="+node, nil).data.([]any)
		require.Len(t, list, 1)

		return list[0].(map[string]any)["checks"]
	}
	put := func(entry string, more ...string) {
		params := append([]string{"map", entry}, more...)
		require.Equal(t, 200, l.call(t, "PUT", "/cluster/mapping/pci/gpu", form(params...)).status)
	}

	require.Equal(
		t, 200,
		l.call(
			t, "POST", "/cluster/mapping/pci",
			form("id", "gpu", "map", "id=10de:27b0,node=pve1,path=0000:01:00,iommugroup=13,subsystem-id=10de:16fa"),
		).status,
	)
	assert.Empty(t, checks("pve1"))
	assert.Equal(t, []any{map[string]any{"severity": "warning", "message": "No mapping for node pve2."}}, checks("pve2"))

	put("id=10de:27b0,node=pve1,path=0000:01:00,iommugroup=13")
	assert.Equal(t, []any{map[string]any{
		"severity": "error",
		"message":  "Invalid configuration: missing expected property 'subsystem-id' for device '0000:01:00.0'\n",
	}}, checks("pve1"))

	put("id=10de:27b0,node=pve1,path=0000:07:00,iommugroup=13,subsystem-id=10de:16fa")
	assert.Equal(
		t,
		[]any{map[string]any{"severity": "error", "message": "Invalid configuration: pci device '0000:07:00.0' not found\n"}},
		checks("pve1"),
	)

	one, _ := l.call(t, "GET", "/cluster/mapping/pci/gpu", nil).data.(map[string]any)
	digest, _ := one["digest"].(string)
	assert.NotContains(t, one, "id")

	put("id=10de:27b0,node=pve1,path=0000:01:00", "digest", digest)
	assert.Equal(t,
		"update hardware mapping failed: detected modified configuration - file changed by other user? Try again.",
		l.call(t, "PUT", "/cluster/mapping/pci/gpu", form("map", "id=10de:27b0,node=pve1,path=0000:01:00", "digest", digest)).reason)
}

func TestAHostReboots(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	require.Equal(t, 200, l.call(t, "POST", "/nodes/pve2/status", form("command", "reboot")).status)

	answer := l.call(t, "GET", "/nodes/pve2/status", nil)
	assert.Equal(t, 595, answer.status, "another host cannot reach it")
	assert.Equal(t, "No route to host", answer.reason)
	require.Eventually(
		t, func() bool { return l.call(t, "GET", "/nodes/pve2/status", nil).status == 200 }, time.Minute, 5*time.Millisecond,
	)
}
