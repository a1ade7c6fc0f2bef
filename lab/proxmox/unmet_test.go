package proxmox_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestErrorsThatTheProgramDoesNotMeet are the rows of Proxmox' table of errors that no run of the program can bring
// about, each with the reason. The others are seen through the program by lab/engine's TestErrorsOf….
func TestErrorsThatTheProgramDoesNotMeet(t *testing.T) {
	t.Parallel()

	l := newLab(t)

	for vmid, more := range map[string]url.Values{"100": {"template": {"1"}}, "101": {"start": {"1"}}, "102": {}} {
		more.Set("vmid", vmid)
		more.Set("scsi0", "local-lvm:1")
		require.Equal(t, "OK", l.task(t, "POST", "/nodes/pve1/qemu", more))
	}

	require.Eventually(t, func() bool {
		vm, _ := l.dc.VM(101)

		return vm.Running
	}, time.Minute, time.Millisecond)

	for row, tc := range map[string]struct {
		reason string
		method string
		path   string
		form   url.Values
		status int
		want   string
		// task says that the task ends with it, not the call.
		task bool
	}{
		"the start of a template": {
			reason: "nothing starts the templates that the build script makes",
			method: "POST",
			path:   "/nodes/pve1/qemu/100/status/start",
			want:   "you can't start a vm if it's a template",
			task:   true,
		},
		"the start of a running machine": {
			reason: "the provider starts what it has made, or has seen stopped",
			method: "POST", path: "/nodes/pve1/qemu/101/status/start", want: "VM 101 already running", task: true,
		},
		"the removal of a running machine": {
			reason: "the provider stops a machine before it removes it",
			method: "DELETE", path: "/nodes/pve1/qemu/101/?purge=1", status: 500, want: "VM 101 is running - destroy failed",
		},
		"a raw PCI id by a token": {
			reason: "the specification refuses raw ids unless the stack logs in as root@pam with a password",
			method: "PUT", path: "/nodes/pve1/qemu/102/config", form: url.Values{"hostpci0": {"0000:01:00"}}, status: 500,
			want: "only root can set 'hostpci0' config for non-mapped devices",
		},
		"the privilege VM.Monitor": {
			reason: "an administrator makes the program's role, from docs/permissions.md",
			method: "POST",
			path:   "/access/roles",
			form:   url.Values{"roleid": {"old"}, "privs": {"VM.Audit,VM.Monitor"}},
			status: 400,
			want:   "invalid format - invalid privilege 'VM.Monitor'",
		},
	} {
		t.Run(row, func(t *testing.T) {
			t.Parallel()

			if tc.task {
				assert.Equal(t, tc.want, l.task(t, tc.method, tc.path, tc.form), "if the program meets it after all: %s", tc.reason)

				return
			}

			a := l.call(t, tc.method, tc.path, tc.form)
			assert.Equal(t, tc.status, a.status)
			assert.Contains(t, a.raw, tc.want, "if the program meets it after all: %s", tc.reason)
		})
	}
}
