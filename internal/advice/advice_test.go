package advice_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"proxmox-talos/internal/advice"
)

func TestFor(t *testing.T) {
	t.Parallel()

	node := advice.Subject{Name: "one-general-1", VMID: 3000, Host: "pve1", Stack: "prod", Template: 998, Datastores: []string{"fast"}}
	for name, tc := range map[string]struct {
		operation, message, want string
	}{
		"a VMID that a clone finds taken":    {"create", "unable to create VM 3000: config file already exists", "`make recover STACK=prod VMID=3000` removes it"},
		"a VMID that a creation finds taken": {"create", "unable to create VM 3000 - VM 3000 already exists on node 'pve2'", "a machine on pve2 has VMID 3000"},
		"a mapping that is there":            {"create", "create hardware mapping failed: pci ID 'rtx4000' already defined", "and `make recover STACK=prod` removes it. Anybody else's stays"},
		"warnings of a creation":             {"create", `task "UPID:…" failed to complete with exit code: WARNINGS: 1`, "was made, but Pulumi does not know it"},
		"warnings of a change":               {"update", `task "UPID:…" failed to complete with exit code: WARNINGS: 1`, "the work was done"},
		"something that is not there":        {"create", "the requested resource does not exist", "pve1 lacks something that it needs: its template, VM 998 (`qm config 998`;"},
		"a datastore that is not there":      {"create", "the requested resource does not exist", ", or its datastore fast (`pvesm status`"},
		"a disabled storage":                 {"create", "storage 'fast' is disabled", "enable fast"},
		"a full ZFS pool":                    {"create", "zfs error: cannot create 'local-zfs/vm-3000-disk-0': out of space", "the storage on pve1 is full"},
		"a copy without room":                {"create", "clone failed: copy failed: command '/usr/bin/qemu-img …' failed: exit code 1", "the storage on pve1 is full"},
		"a locked template":                  {"create", "VM is locked (backup)", "wait for the end of the backup of VM 998; if no such task runs any more, `qm unlock 998` on pve1"},
		"a locked machine":                   {"update", "VM is locked (backup)", "`qm unlock 3000` on pve1"},
		"a protected machine":                {"delete", "can't remove VM 3000 - protection mode enabled", "`qm set 3000 --protection 0` on pve1"},
		"a missing privilege":                {"create", "Permission check failed (/vms/3000, VM.Allocate)", "on this path (/vms/3000, VM.Allocate)"},
		"a privilege without a name":         {"create", "Permission check failed", "docs/permissions.md"},
		"credentials":                        {"create", "received an HTTP 401 response - Reason: authentication failure", "check proxmoxve:apiToken"},
		"no quorum":                          {"create", "cluster not ready - no quorum?", "`pvecm status`"},
		"no quorum for a change":             {"update", "unable to open file '/etc/pve/nodes/pve1/qemu-server/3000.conf.tmp.1' - Permission denied", "`pvecm status`"},
		"a host that is away":                {"create", "received an HTTP 595 response - Reason: No route to host", "pve1 cannot be reached"},
		"a file in the way":                  {"create", "refusing to override existing file '/var/lib/vz/template/iso/t.img'", "remove /var/lib/vz/template/iso/t.img on pve1"},
		"a smaller disk":                     {"update", "shrinking disks is not supported", "disks only grow"},
		"a mapping that is not there":        {"create", "PCI device mapping not found for 'gpu'", "Resource Mappings"},
		"a lock that is not given":           {"create", "can't lock file '/var/lock/qemu-server/lock-998.conf' - got timeout", "pve1 was too busy"},
		"a broken connection":                {"create", "read tcp: connection reset by peer", "may have been done or not; `qm list` on pve1"},
		"a machine that does not start":      {"create", "start failed: QEMU exited with code 1", "the task's log on pve1 says why"},
		"anything else":                      {"create", "lightning", "the task's log on pve1 may say more"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			said, known := advice.For(node, tc.operation, tc.message)
			assert.Equal(t, name != "anything else", known)
			assert.Contains(t, said, tc.want)
			assert.Contains(t, said, "one-general-1 (VM 3000 on host pve1): "+tc.operation+" failed. What to do: ")
			assert.Contains(t, said, "Then `pulumi up --refresh` resumes.")
		})
	}

	for _, message := range []string{"unable to create VM 3000: config file already exists", "unable to create VM 3000 - VM 3000 already exists on node 'pve2'"} {
		said, _ := advice.For(node, "create", message)
		assert.Contains(t, said, "state a free VMID for one-general-1 alone, nodes.<n>.vmid of its pool")
		assert.NotContains(t, said, "qm destroy", "the machine may be somebody's")
		assert.NotContains(t, said, "firstVmid", "which would replace the whole pool")
	}

	said, _ := advice.For(advice.Subject{Name: "gpu"}, "update", "the requested resource does not exist")
	assert.Contains(t, said, "gpu: update failed. What to do: Proxmox does not have what it names: compare it with what its host has")
	assert.Equal(t, "t.img (on host pve1)", advice.Subject{Name: "t.img", Host: "pve1"}.String())
	assert.Equal(t, "talos-pve1-build", advice.Subject{Name: "talos-pve1-build"}.String())
}
