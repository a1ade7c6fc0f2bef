package errorhints_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/internal/errorhints"
)

func TestFor(t *testing.T) {
	t.Parallel()

	node := errorhints.Subject{
		Name: "one-general-1", VMID: 3000, Host: "pve1", Stack: "prod", Template: 998, Datastores: []string{"fast"},
	}

	for name, tc := range map[string]struct {
		operation, message, want string
	}{
		"an authority that this computer does not trust": {
			"create", `Get "https://10.0.0.2:8006/api2/json/version": tls: failed to verify certificate: x509: certificate signed by unknown authority`,
			"name the copy in SSL_CERT_FILE (docs/trust.md)",
		},
		"a certificate of another address": {
			"create", `tls: failed to verify certificate: x509: certificate is valid for 127.0.0.1, 10.0.0.2, not 10.0.0.9`,
			"`pvecm updatecerts --force` on the host makes a new one",
		},
		"another port": {
			"create", "http: server gave HTTP response to HTTPS client", "this is not the port of Proxmox' API, which is 8006",
		},
		"no port": {
			"create", `Get "https://10.0.0.2/api2/json/version": dial tcp 10.0.0.2:443: connect: connection refused`,
			"an endpoint without a port means port 443, and Proxmox' API has port 8006",
		},
		"a VMID that a clone finds taken": {
			"create", "unable to create VM 3000: config file already exists",
			"`talos-proxmox recover prod --vmid 3000` removes it. Any other stays",
		},
		"a VMID that a creation finds taken": {
			"create", "unable to create VM 3000 - VM 3000 already exists on node 'pve2'",
			"a machine of this Proxmox cluster has VMID 3000",
		},
		"warnings of a creation": {
			"create", `task "UPID:…" failed to complete with exit code: WARNINGS: 1`,
			"`talos-proxmox recover prod --vmid 3000` removes it",
		},
		"a mapping that is there": {
			"create", "create hardware mapping failed: pci ID 'rtx4000' already defined",
			"and `talos-proxmox recover prod` removes it. Anybody else's stays",
		},
		"a USB mapping that is there": {
			"create", "create hardware mapping failed: usb ID 'zigbee' already defined", "there is a mapping zigbee, and its comment",
		},
		"a user that is there": {
			"create", "create user failed: user 'talos-prod-one-csi@pve' already exists",
			"there is a user talos-prod-one-csi@pve, and its comment",
		},
		"a token that is there": {
			"create", "Parameter verification failed. (tokenid: Token already exists.)",
			"`talos-proxmox recover prod` removes it. Anybody else's stays",
		},
		"warnings of a change": {
			"update", `task "UPID:…" failed to complete with exit code: WARNINGS: 1`, "the work was done",
		},
		"something that is not there": {
			"create", "the requested resource does not exist",
			"pve1 lacks something that it needs: its template, VM 998 (`qm config 998`;",
		},
		"a datastore that is not there": {
			"create", "the requested resource does not exist", ", or its datastore fast (`pvesm status`",
		},
		"a pool that a change does not find": {
			"update", "while adding VM 3000 to pool ops: error updating pool: the requested resource does not exist",
			"there is no resource pool ops: `pvesh create /pools --poolid ops` on pve1, and `pvesh set /pools/ops --vms 3000`",
		},
		"a pool that a creation does not find": {
			"create", "Permission check failed (pool 'ops' does not exist)",
			"there is no resource pool ops: `pvesh create /pools --poolid ops` on pve1. Then",
		},
		"a bridge that the host does not have": {
			"create", "task \"UPID:pve1:…:qmstart:3000:\" failed to complete with exit code: bridge 'vmbr1' does not exist",
			"pve1 has no bridge vmbr1: create it there (System, Network), or correct network.bridge or extraNICs of the pool",
		},
		"a change that a running machine cannot have": {
			"update", "Parameter verification failed. (net0: hotplug problem - no physical interface on bridge 'vmbr0')",
			"its next start brings it: correct what the message names, drain its node, and `qm reboot 3000` on pve1",
		},
		"a paused machine": {
			"update", "error rebooting VM: received an HTTP 500 response - Reason: VM is paused - cannot shutdown",
			"then `qm resume 3000` and `pulumi up`, which restarts it where a change waits for that",
		},
		"a disabled storage": {"create", "storage 'fast' is disabled", "enable fast on pve1"},
		"a full ZFS pool": {
			"create", "zfs error: cannot create 'local-zfs/vm-3000-disk-0': out of space", "the storage on pve1 is full",
		},
		"a copy without room": {
			"create", "clone failed: copy failed: command '/usr/bin/qemu-img …' failed: exit code 1",
			"the storage on pve1 is full",
		},
		"an image that is gone": {
			"create", "received an HTTP 500 response - Reason: invalid server response: '404 Not Found'",
			"set talos-proxmox:templates.<class>.url",
		},
		"an image that is another file": {
			"create", "failed to complete with exit code: checksum mismatch: got 'a' != expect 'b'",
			"compare it with what the publisher states",
		},
		"another image of this name": {
			"create", "could not download file 'd.img', unexpected error: task failed to complete with exit code: checksum mismatch: got 'a' != expect 'b', aborting",
			"pve1 has a file of this name already",
		},
		"a locked template": {
			"create", "VM is locked (backup)",
			"wait for the end of the backup of VM 998; if no such task runs any more, `qm unlock 998` on pve1",
		},
		"a locked machine": {"update", "VM is locked (backup)", "`qm unlock 3000` on pve1"},
		"a protected machine": {
			"delete", "can't remove VM 3000 - protection mode enabled", "`qm set 3000 --protection 0` on pve1",
		},
		"a missing privilege": {
			"create", "Permission check failed (/vms/3000, VM.Allocate)", "on this path (/vms/3000, VM.Allocate)",
		},
		"a privilege without a name": {"create", "Permission check failed", "docs/permissions.md"},
		"credentials": {
			"create", "received an HTTP 401 response - Reason: authentication failure", "check proxmoxve:apiToken",
		},
		"credentials that expired": {
			"update", "received an HTTP 401 response - Reason: Authentication failed!", "a password's session lasts two hours",
		},
		"a template that is not there": {
			"create", "received an HTTP 500 response - Reason: unable to find configuration file for VM 998 on node 'pve1'",
			"What to do: pve1 lacks its template, VM 998 (`qm config 998`;",
		},
		"a machine that is gone": {
			"update", "unable to find configuration file for VM 3000 on node 'pve1'", "pve1 lacks something that it needs",
		},
		"a rule that gives more than one has": {
			"create", "received an HTTP 500 response - Reason: ACL update failed: 400 Parameter verification failed.",
			"nobody gives away what he does not have",
		},
		"a download that the publisher refuses": {
			"create", `task "UPID:…" failed to complete with exit code: download failed: exit code 8`,
			"there is no such file any more",
		},
		"no quorum": {"create", "cluster not ready - no quorum?", "`pvecm status`"},
		"no quorum for a change": {
			"update", "unable to open file '/etc/pve/nodes/pve1/qemu-server/3000.conf.tmp.1' - Permission denied",
			"`pvecm status`",
		},
		"a host that is away": {
			"create", "received an HTTP 595 response - Reason: No route to host", "pve1 cannot be reached: look at its network",
		},
		"an endpoint that is away": {
			"create", "dial tcp 10.0.0.2:8006: connect: connection refused",
			"nothing answers at 10.0.0.2:8006: look at its network",
		},
		"what only root may":          {"update", "Permission check failed (user != root@pam)", "only root@pam"},
		"a file in the way":           {"create", "refusing to override existing file '/var/lib/vz/template/iso/t.img'", "If no machine uses it (`grep -r t.img /etc/pve/nodes` finds nothing), remove /var/lib/vz/template/iso/t.img on pve1"},
		"a smaller disk":              {"update", "shrinking disks is not supported", "disks only grow"},
		"a mapping that is not there": {"create", "PCI device mapping not found for 'gpu'", "correct it there"},
		"a USB device that is not there": {
			"create", "USB Mapping invalid (hardware probably changed): usb device '1-4' not found", "with `lsusb` on pve1 and correct it",
		},
		"a lock that is not given": {
			"create", "can't lock file '/var/lock/qemu-server/lock-998.conf' - got timeout", "pve1 was too busy",
		},
		"a broken connection": {
			"create", "read tcp: connection reset by peer", "may have been done or not; `qm list` on pve1",
		},
		"a machine that does not start": {
			"create", "start failed: QEMU exited with code 1", "the task's log on pve1 says why",
		},
		"anything else": {"create", "lightning", "the task's log on pve1 may say more"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			hint, known := errorhints.For(node, tc.operation, tc.message)
			assert.Equal(t, name != "anything else", known)
			assert.Contains(t, hint, tc.want)
			assert.Contains(t, hint, "one-general-1 (VM 3000 on host pve1): "+tc.operation+" failed. What to do: ")

			then := "Then `pulumi up --refresh` resumes."
			if tc.operation == "delete" {
				then = "Then run the same command again, with --refresh."
			}

			assert.Contains(t, hint, then)
		})
	}

	hint, _ := errorhints.For(errorhints.Subject{Name: "gpu"}, "update", "the requested resource does not exist")
	assert.Contains(
		t, hint, "gpu: update failed. What to do: Proxmox does not have what it names: compare it with what its host has",
	)
	assert.Equal(t, "t.img (on host pve1)", errorhints.Subject{Name: "t.img", Host: "pve1"}.String())
	assert.Equal(t, "talos-pve1-build", errorhints.Subject{Name: "talos-pve1-build"}.String())
}

// TestWhoHasAVMID distinguishes a machine that an interrupted run of the stack left from those of others.
func TestWhoHasAVMID(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		holder *errorhints.Holder
		want   string
	}{
		"its own": {
			&errorhints.Holder{Name: "one-general-1", Host: "pve2", Owner: "acme/talos-proxmox/prod", Ours: true},
			"an interrupted run of this stack left VM 3000 on pve2: `talos-proxmox recover prod --vmid 3000` removes it.",
		},
		"another machine of the stack": {
			&errorhints.Holder{Name: "one-general-9", Host: "pve2", Owner: "acme/talos-proxmox/prod", Ours: true},
			"VM 3000 is one-general-9 on pve2, and belongs to the stack acme/talos-proxmox/prod: leave it, and set a free VMID for one-general-1 alone, nodes.<n>.vmid of its pool.",
		},
		"another stack's": {
			&errorhints.Holder{Name: "one-general-1", Host: "pve2", Owner: "acme/talos-proxmox/dev"},
			"belongs to the stack acme/talos-proxmox/dev: leave it, and set a free VMID for one-general-1 alone",
		},
		"one that the state knows nothing of": {
			&errorhints.Holder{Name: "one-general-1", Host: "pve2", Owner: "acme/talos-proxmox/prod (id=1d2c)", Lost: true},
			"VM 3000 is one-general-1 on pve2, of the stack acme/talos-proxmox/prod (id=1d2c), and this state does not have it: " +
				"the state was lost, or this is another backend",
		},
		"someone's": {
			&errorhints.Holder{Name: "db", Host: "pve2"},
			"VM 3000 is db on pve2, and no stack made it: leave it, and set a free VMID for one-general-1 alone, nodes.<n>.vmid of its pool.",
		},
		"one that others made for it": {
			&errorhints.Holder{Name: "one-general-1", Host: "pve2"},
			"and no stack made it: `talos-proxmox import prod` adds it to this stack (docs/migration.md); otherwise leave it, and set",
		},
		"no one knows": {nil, "If it is one-general-1 and names this stack, an interrupted run left it, and `talos-proxmox recover prod --vmid 3000` removes it. Any other stays: set"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			subject := errorhints.Subject{Name: "one-general-1", VMID: 3000, Host: "pve1", Stack: "prod", Holder: tc.holder}

			for _, message := range []string{
				"unable to create VM 3000: config file already exists",
				"unable to create VM 3000 - VM 3000 already exists on node 'pve2'",
			} {
				assert.True(t, errorhints.IsTaken(message))
				hint, _ := errorhints.For(subject, "create", message)
				assert.Contains(t, hint, tc.want)
			}
		})
	}

	assert.False(t, errorhints.IsTaken("start failed"))
}

// TestAdviceThatHarms a running cluster is not given.
func TestAdviceThatHarms(t *testing.T) {
	t.Parallel()

	subject := errorhints.Subject{
		Name: "one-general-1", VMID: 3000, Host: "pve1", Stack: "prod", Template: 998, Datastores: []string{"fast"},
	}
	for _, message := range []string{
		"unable to create VM 3000: config file already exists", "failed to complete with exit code: WARNINGS: 1",
		"storage 'fast' is disabled", "out of space",
		"the requested resource does not exist", "VM is locked (backup)", "protection mode enabled", "No route to host",
		"PCI device mapping invalid", "USB Mapping invalid",
	} {
		hint, _ := errorhints.For(subject, "create", message)
		assert.NotContains(t, hint, "qm destroy", "the machine may be someone else's")
		assert.NotContains(t, hint, "Resource Mappings", "Pulumi would restore the mapping")
		assert.NotContains(t, hint, "power", "machines run on the host")

		if strings.Contains(hint, "another datastore") {
			assert.Contains(t, hint, "which moves the disks of all machines that the pool has")
		}
	}

	hint, _ := errorhints.For(subject, "update", "the requested resource does not exist")
	assert.NotContains(t, hint, "firstVmid", "a running machine needs no template")
	hint, _ = errorhints.For(subject, "delete", "VM is locked (backup)")
	assert.NotContains(t, hint, "pulumi up", "an up would undo a destroy")
}
