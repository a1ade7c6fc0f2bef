package proxmox_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTheProvidersWay makes the calls of the published provider, in its order and spelling: create a template, clone
// it, change the clone, move and delete it.
func TestTheProvidersWay(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	do := func(method, path string, pairs ...string) {
		t.Helper()
		require.Equal(t, "OK", l.task(t, method, path, form(pairs...)))
	}
	config := func(vmid string) map[string]any {
		t.Helper()

		a := l.call(t, "GET", "/nodes/pve1/qemu/"+vmid+"/config", nil)
		require.Equal(t, 200, a.status)

		c, _ := a.data.(map[string]any)

		return c
	}

	do("POST", "/nodes/pve1/storage/local/download-url", "content", "iso", "filename", "talos.iso", "node", "pve1",
		"storage", "local", "url", "https://f/talos.iso",
		"verify-certificates", "1")
	do("POST", "/nodes/pve1/qemu", "vmid", "900", "name", "template", "agent",
		"enabled=0,fstrim_cloned_disks=0,type=virtio", "bios", "ovmf", "cores", "4",
		"cpu", "cputype=host", "efidisk0", "file=local-lvm:1,format=raw,efitype=4m,pre-enrolled-keys=0", "ide0",
		"file=local:iso/talos.iso,media=cdrom",
		"machine", "q35", "memory", "4096", "balloon", "0", "net0",
		"model=virtio,bridge=vmbr0,firewall=0,macaddr=02:00:00:00:09:00", "onboot", "0",
		"ostype", "l26", "scsi0",
		"file=local-lvm:20,format=raw,size=21474836480,aio=io_uring,backup=1,iothread=1,ssd=1,discard=on,cache=none,replicate=1",
		"scsihw", "virtio-scsi-pci", "serial0", "socket", "tablet", "0", "tags", "talos", "sockets", "1", "numa", "0",
		"keyboard", "en-us", "vga", "memory=16,type=serial0",
		"boot", "order=scsi0;ide0", "acpi", "1", "protection", "0", "template", "1", "kvm", "1")
	assert.InDelta(t, 1, config("900")["template"], 0)
	assert.Contains(t, config("900")["scsi0"], "local-lvm:base-900-disk-1,aio=io_uring")

	do("POST", "/nodes/pve1/qemu/900/clone", "newid", "2000", "full", "1", "name", "cp-1", "storage", "local-zfs")
	assert.NotContains(t, config("2000"), "lock")
	require.Equal(
		t, 200, l.call(t, "PUT", "/nodes/pve1/qemu/2000/config", form("delete", "ide2")).status,
		"what is not there can be deleted",
	)
	require.Equal(t, 200, l.call(t, "PUT", "/nodes/pve1/qemu/2000/config", form("cores", "2", "memory", "8192", "balloon",
		"0",
		"net0", "model=virtio,bridge=vmbr0,macaddr=02:00:00:00:20:00", "ipconfig0", "ip=127.30.1.10/24,gw=127.30.1.1",
		"nameserver", "127.30.1.1",
		"ide2", "file=local-zfs:cloudinit,media=cdrom", "ide0", "file=none,media=cdrom", "delete", "tags,description",
		"onboot", "1")).status)

	disk := strings.Split(config("2000")["scsi0"].(string), ",")[0]

	do("PUT", "/nodes/pve1/qemu/2000/resize", "disk", "scsi0", "size", "40G")
	require.Equal(
		t, 200,
		l.call(
			t, "PUT", "/nodes/pve1/qemu/2000/config", form("scsi0", "file="+disk+",format=raw,size=42949672960,ssd=1"),
		).status,
	)
	assert.Equal(t, disk+",format=raw,size=40G,ssd=1", config("2000")["scsi0"])
	assert.Equal(t, "you can't move to the same storage with same format",
		l.call(
			t, "POST", "/nodes/pve1/qemu/2000/move_disk", form("delete", "1", "disk", "efidisk0", "storage", "local-zfs"),
		).reason)
	assert.Equal(t, "local-zfs:vm-2000-cloudinit,media=cdrom", config("2000")["ide2"])

	do("POST", "/nodes/pve1/qemu/2000/status/start", "timeout", "1800")
	assert.Contains(t, l.call(t, "GET", "/cluster/resources?type=vm", nil).raw, `"id":"qemu/2000"`)
	assert.Contains(t, l.call(t, "GET", "/nodes/pve1/storage/local-zfs/content", nil).raw, `"volid":"`+disk+`"`)
	do("POST", "/nodes/pve1/qemu/2000/migrate", "online", "1", "target", "pve2", "with-local-disks", "1")
	assert.JSONEq(t, `{"data":[]}`, l.call(t, "GET", "/nodes/pve1/storage/local-zfs/content", nil).raw)
	do("POST", "/nodes/pve2/qemu/2000/status/shutdown", "forceStop", "1", "timeout", "60")
	do("DELETE", "/nodes/pve2/qemu/2000/?destroy-unreferenced-disks=1&purge=1")
	assert.Contains(t, l.call(t, "GET", "/nodes/pve2/qemu/2000/status/current", nil).reason, "does not exist")
	assert.JSONEq(t, `{"data":[]}`, l.call(t, "GET", "/nodes/pve2/storage/local-zfs/content", nil).raw)
}
