package proxmox_test

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	client "github.com/luthermonson/go-proxmox"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// agents is a guest in every machine, with an agent and one address.
type agents struct{}

func (agents) PowerOn(datacentre.Hardware) {}

func (agents) PowerOff(int) {}

func (agents) Serial(context.Context, int, func(string) error) error { return nil }

func (agents) Agent(int) ([]datacentre.AgentInterface, bool) {
	return []datacentre.AgentInterface{
		{Name: "eth0", MAC: "02:00:00:00:00:01", Addresses: []netip.Prefix{netip.MustParsePrefix("127.30.1.1/24")}},
	}, true
}

// scenario calls every method of the lab, through the recorder.
func scenario(t *testing.T, rec *recorder) {
	t.Helper()

	l := newLab(t)
	l.dc.SetGuests(agents{})
	rec.next, l.http.Transport = l.http.Transport, rec

	s := steps{t: t, lab: l}
	s.access()
	s.accounts()
	s.files()
	s.machines()
	s.pools()
	s.mappings()
	s.reads()
	s.tasks()
	s.goProxmox()
	s.deletes()
}

type steps struct {
	t   *testing.T
	lab *lab
}

func (s steps) ok(method, path string, pairs ...string) any {
	s.t.Helper()

	a := s.lab.call(s.t, method, path, form(pairs...))
	require.Equal(s.t, 200, a.status, "%s %s: %s %v", method, path, a.reason, a.errors)

	return a.data
}

func (s steps) task(method, path string, pairs ...string) {
	s.t.Helper()
	require.Equal(s.t, "OK", s.lab.task(s.t, method, path, form(pairs...)), "%s %s", method, path)
}

func (s steps) access() {
	s.ok("GET", "/access")
	s.ok("GET", "/access/ticket")
	s.ok("POST", "/access/ticket", "username", "root@pam", "password", password)
	s.ok("GET", "/access/domains")
}

func (s steps) files() {
	s.ok("GET", "/nodes/pve1/query-url-metadata?url="+url.QueryEscape("https://factory.lab/talos.iso"))
	s.task(
		"POST", "/nodes/pve1/storage/local/download-url", "url", "https://factory.lab/talos.iso", "content", "iso",
		"filename", "talos.iso",
	)

	body := "--b\r\nContent-Disposition: form-data; name=\"content\"\r\n\r\niso\r\n" +
		"--b\r\nContent-Disposition: form-data; name=\"filename\"; filename=\"up.iso\"\r\n\r\nbytes\r\n--b--\r\n"
	req, err := http.NewRequestWithContext(
		s.t.Context(), http.MethodPost, s.lab.url+"/nodes/pve1/storage/local/upload", strings.NewReader(body),
	)
	require.NoError(s.t, err)
	req.Header.Set("Authorization", "PVEAPIToken="+token)
	req.Header.Set("Content-Type", "multipart/form-data; boundary=b")

	upid, _ := s.lab.do(s.t, req).data.(string)
	_, err = s.lab.dc.WaitTask(s.t.Context(), upid)
	require.NoError(s.t, err)

	s.ok("GET", "/nodes/pve1/storage/local/content?content=iso")
	s.ok("GET", "/nodes/pve1/storage/local/content/local:iso%2Ftalos.iso")
	s.task("DELETE", "/nodes/pve1/storage/local/content/local:iso%2Fup.iso")
	s.ok("POST", "/nodes/pve1/storage/local-lvm/content", "vmid", "9999", "filename", "vm-9999-disk-7", "size", "1G")
}

// machines are a template 900, its clone 101, which runs, and 102.
func (s steps) machines() {
	s.task("POST", "/nodes/pve1/qemu", "vmid", "900", "name", "template", "memory", "2048", "cores", "2", "cpu", "host",
		"bios", "ovmf", "machine", "q35",
		"efidisk0", "local-lvm:1,efitype=4m,pre-enrolled-keys=0", "scsi0", "local-lvm:4,discard=on,ssd=1,iothread=1",
		"scsihw", "virtio-scsi-pci", "agent", "1",
		"ide0", "local:iso/talos.iso,media=cdrom", "net0", "virtio,bridge=vmbr0", "ostype", "l26", "serial0", "socket",
		"tablet", "0", "vga", "serial0",
		"boot", "order=scsi0;ide0", "tags", "talos;lab", "balloon", "0", "numa", "0", "description", "a template", "onboot",
		"1", "cpulimit", "1.5")
	s.task("POST", "/nodes/pve1/qemu/900/template")
	s.task(
		"POST", "/nodes/pve1/qemu/900/clone", "newid", "101", "name", "node", "full", "1", "storage", "local-lvm",
		"description", "a node",
	)
	s.ok("PUT", "/nodes/pve1/qemu/101/config", "ide2", "local-lvm:cloudinit,media=cdrom", "ipconfig0",
		"ip=127.30.1.1/24,gw=127.30.1.254", "nameserver", "127.30.1.254",
		"searchdomain", "lab.internal", "startup", "order=1,up=30", "protection", "0")
	s.task("POST", "/nodes/pve1/qemu/101/config", "scsi1", "local-lvm:1", "cores", "4")
	s.task("PUT", "/nodes/pve1/qemu/101/resize", "disk", "scsi0", "size", "+1G")
	s.task("POST", "/nodes/pve1/qemu/101/move_disk", "disk", "scsi0", "storage", "local-zfs", "delete", "1")
	s.ok("PUT", "/nodes/pve1/qemu/101/unlink", "idlist", "scsi1")
	s.task("POST", "/nodes/pve1/qemu", "vmid", "102")
	s.task("POST", "/nodes/pve1/qemu", "vmid", "103")
	s.task("POST", "/nodes/pve1/qemu/103/migrate", "target", "pve2")
	s.task("POST", "/nodes/pve1/qemu/101/status/start", "timeout", "30")
	s.ok("GET", "/nodes/pve1/qemu/101/agent/network-get-interfaces")
	s.ok("POST", "/nodes/pve1/qemu/101/agent/ping")

	for _, path := range []string{
		"/nodes/pve1/qemu/101/config", "/nodes/pve1/qemu/101/status/current", "/nodes/pve1/qemu/900/config",
		"/nodes/pve1/qemu/900/status/current",
	} {
		s.ok("GET", path)
	}

	s.task("POST", "/nodes/pve1/qemu/101/status/reset")
	s.task("POST", "/nodes/pve1/qemu/101/status/reboot", "timeout", "30")
	require.NoError(s.t, s.lab.dc.SetLock(102, "backup"))
}

func (s steps) pools() {
	s.ok("POST", "/pools", "poolid", "lab", "comment", "c")
	s.ok("POST", "/pools", "poolid", "old")
	s.ok("PUT", "/pools", "poolid", "lab", "vms", "101,102")
	s.ok("PUT", "/pools/lab", "storage", "local")
	s.ok("GET", "/pools/lab")
	s.ok("GET", "/pools?poolid=lab")
	s.ok("DELETE", "/pools?poolid=old")
}

func (s steps) mappings() {
	s.ok(
		"POST", "/cluster/mapping/pci", "id", "gpu", "map", "id=10de:27b0,node=pve1,path=0000:01:00.0", "map",
		"id=10de:27b0,node=pve2,path=0000:02:00.0",
	)

	entry := "id=10de:27b0,node=pve1,path=0000:01:00.0"
	s.ok("PUT", "/cluster/mapping/pci/gpu", "map", entry, "description", "d", "mdev", "1")
	s.ok("GET", "/cluster/mapping/pci/gpu")
	s.ok("GET", "/cluster/mapping/pci?check-node=pve1")
	s.ok("PUT", "/cluster/mapping/pci/gpu", "map", entry, "delete", "description,mdev")
	s.ok("GET", "/cluster/mapping/pci")
}

// reads calls what changes nothing, with machines of every state about.
func (s steps) reads() {
	for _, path := range []string{
		"/version", "/cluster", "/cluster/nextid", "/cluster/nextid?vmid=555", "/cluster/options", "/cluster/resources",
		"/cluster/resources?type=vm", "/cluster/status",
		"/cluster/tasks", "/cluster/ha/resources", "/cluster/mapping", "/nodes", "/nodes/pve1", "/nodes/pve1/version",
		"/nodes/pve1/status", "/nodes/pve1/dns",
		"/nodes/pve1/network", "/nodes/pve1/network?type=any_bridge", "/nodes/pve1/lxc", "/nodes/pve1/hardware/pci",
		"/nodes/pve1/disks/zfs", "/nodes/pve1/qemu", "/nodes/pve1/qemu?full=1",
		"/nodes/pve1/qemu/101", "/nodes/pve1/qemu/101/pending", "/nodes/pve1/qemu/101/snapshot",
		"/nodes/pve1/qemu/101/status", "/storage", "/storage/local",
		"/nodes/pve1/storage", "/nodes/pve1/storage?content=images&enabled=1", "/nodes/pve1/storage/local",
		"/nodes/pve1/storage/local/status",
		"/nodes/pve1/storage/local-lvm/content", "/nodes/pve1/storage/local-zfs/content?vmid=101", "/pools",
	} {
		s.ok("GET", path)
	}
}

func (s steps) tasks() {
	upid, _ := s.ok("POST", "/nodes/pve1/qemu/101/status/shutdown", "timeout", "60", "forceStop", "1").(string)
	path := "/nodes/pve1/tasks/" + strings.ReplaceAll(url.PathEscape(upid), "!", "%21")
	s.ok("GET", path+"/status")
	s.ok("GET", "/cluster/tasks")

	_, err := s.lab.dc.WaitTask(s.t.Context(), upid)
	require.NoError(s.t, err)

	s.ok("GET", path)
	s.ok("GET", path+"/status")
	s.ok("GET", path+"/log?start=0&limit=10")
	s.ok("DELETE", path)
	s.ok("GET", "/nodes/pve1/tasks?limit=100&source=all")
	s.ok("GET", "/nodes/pve1/tasks?vmid=101&typefilter=qmstart")
}

// goProxmox does some of it as a client that no one here wrote does.
func (s steps) goProxmox() {
	t, ctx := s.t, s.t.Context()
	c := client.NewClient(
		s.lab.url, client.WithHTTPClient(s.lab.http),
		client.WithCredentials(&client.Credentials{Username: "root@pam", Password: password}),
	)
	wait := func(task *client.Task, err error) {
		t.Helper()
		require.NoError(t, err)
		require.NoError(t, task.Wait(ctx, 5*time.Millisecond, time.Minute))
		require.True(t, task.IsSuccessful, task.ExitStatus)
	}

	node, err := c.Node(ctx, "pve1")
	require.NoError(t, err)

	template, err := node.VirtualMachine(ctx, 900)
	require.NoError(t, err)

	id, task, err := template.Clone(ctx, &client.VirtualMachineCloneOptions{Full: 1, Name: "another"})
	wait(task, err)

	vm, err := node.VirtualMachine(ctx, id)
	require.NoError(t, err)
	wait(
		vm.Config(
			ctx, client.VirtualMachineOption{Name: "cores", Value: 2}, client.VirtualMachineOption{Name: "onboot", Value: true},
		),
	)
	wait(vm.ResizeDisk(ctx, "scsi0", "+1G"))
	wait(vm.Start(ctx))

	interfaces, err := vm.AgentGetNetworkIFaces(ctx)
	require.NoError(t, err)
	assert.Len(t, interfaces, 1)

	_, err = node.Storages(ctx)
	require.NoError(t, err)
	_, err = node.Networks(ctx)
	require.NoError(t, err)
	_, err = c.Pools(ctx)
	require.NoError(t, err)

	wait(vm.Stop(ctx))
	wait(vm.Delete(ctx))
}

func (s steps) deletes() {
	s.task("POST", "/nodes/pve1/qemu/101/status/start")
	s.task("POST", "/nodes/pve1/qemu/101/status/stop", "timeout", "10")
	s.task("DELETE", "/nodes/pve1/qemu/101?purge=1&destroy-unreferenced-disks=1")
	s.ok("PUT", "/pools/lab", "vms", "102", "storage", "local", "delete", "1")
	s.ok("DELETE", "/pools/lab")
	s.ok("DELETE", "/cluster/mapping/pci/gpu")
	s.ok("POST", "/nodes/pve2/status", "command", "reboot")
}
