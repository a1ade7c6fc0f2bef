package proxmox_test

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// populated is a lab with a running VM 101, a stopped 102, a locked 103, a protected 104 and a template 900.
func populated(t *testing.T) *lab {
	t.Helper()

	l := newLab(t)

	for _, c := range []url.Values{
		form(
			"vmid", "101", "name", "a", "memory", "1024", "scsi0", "local-lvm:4", "net0", "virtio,bridge=vmbr0", "onboot", "1",
			"agent", "1", "tags", "x",
		),
		form("vmid", "102", "name", "b", "scsi0", "file=local-lvm:4,format=raw", "efidisk0", "local-lvm:1,efitype=4m"),
		form("vmid", "103"), form("vmid", "104", "protection", "1"), form("vmid", "900", "scsi0", "local-lvm:4"),
	} {
		require.Equal(t, "OK", l.task(t, "POST", "/nodes/pve1/qemu", c))
	}

	require.Equal(t, "OK", l.task(t, "POST", "/nodes/pve1/qemu/101/status/start", nil))
	require.Equal(t, "OK", l.task(t, "POST", "/nodes/pve1/qemu/900/template", nil))
	require.NoError(t, l.dc.SetLock(103, "backup"))

	return l
}

// TestRefusals are those that no call of the recording meets: the others TestTheLabAnswersAsRecorded shows.
func TestRefusals(t *testing.T) {
	t.Parallel()

	l := populated(t)

	for name, tc := range map[string]struct {
		method, path string
		form         url.Values
		status       int
		reason       string
		field, text  string
	}{
		"no images there": {
			"POST", "/nodes/pve1/qemu", form("vmid", "200", "scsi0", "local:1"), 400, "Parameter verification failed.",
			"storage", "storage 'local' does not support vm images",
		},
		"a machine elsewhere": {
			"GET", "/nodes/pve2/qemu/101/config", nil, 500,
			"Configuration file 'nodes/pve2/qemu-server/101.conf' does not exist", "", "",
		},
		"a locked machine": {
			"PUT", "/nodes/pve1/qemu/103/config", form("cores", "2"), 500, "VM is locked (backup)", "", "",
		},
		"a path contradicted": {
			"POST", "/nodes/pve1/qemu/102/status/start", form("vmid", "103"), 400, "Parameter verification failed.", "vmid",
			"duplicate parameter (already defined in URI) with conflicting values!",
		},
		"a parameter alone": {
			"GET", "/pools?type=qemu", nil, 400, "Parameter verification failed.", "poolid",
			"missing property required by 'type'",
		},
		"a parameter twice": {
			"POST", "/nodes/pve1/qemu/900/clone", form("newid", "200", "name", "a", "name", "b"), 400,
			"Parameter verification failed.", "name", "type check ('string') failed - got ARRAY",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			a := l.call(t, tc.method, tc.path, tc.form)
			assert.Equal(t, tc.status, a.status)
			assert.Equal(t, tc.reason, a.reason)

			if tc.field != "" {
				assert.Equal(t, tc.text, a.errors[tc.field])
			}
		})
	}
}
