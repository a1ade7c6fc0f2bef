package datacentre_test

import (
	"context"
	"maps"
	"net/netip"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/image"
)

const root = "root@pam"

var talos = image.Image{OS: "talos", Version: "v1.12.6", Schematic: "abc", Platform: "nocloud", Arch: "amd64"}

// fastOptions are two hosts with a clock on which hours pass in milliseconds.
func fastOptions(t *testing.T) datacentre.Options {
	t.Helper()

	gpu := datacentre.PCIDevice{
		Address:    "0000:01:00.0",
		Vendor:     "NVIDIA",
		Device:     "AD104GL",
		VendorID:   "0x10de",
		DeviceID:   "0x27b0",
		Class:      "0x030000",
		IOMMUGroup: 14,
	}

	return datacentre.Options{
		Hosts: []datacentre.HostOptions{
			{Name: "pve1", Root: t.TempDir(), Cores: 8, MemoryMiB: 16384, PCI: []datacentre.PCIDevice{gpu}},
			{Name: "pve2", Root: t.TempDir(), Cores: 8, MemoryMiB: 16384},
		},
		Clock: datacentre.NewClock(10000), Durations: datacentre.DefaultDurations(), Cluster: "lab",
		Network: datacentre.Network{
			Bridge: "vmbr0", Prefix: netip.MustParsePrefix("127.30.1.0/24"), Gateway: netip.MustParseAddr("127.30.1.1"),
			DNS:   []netip.Addr{netip.MustParseAddr("127.30.1.1")},
			First: netip.MustParseAddr("127.30.1.100"),
			Last:  netip.MustParseAddr("127.30.1.101"),
		},
		Fetch: func(_ context.Context, _ string) ([]byte, error) { return talos.Encode(), nil },
	}
}

func open(t *testing.T, o datacentre.Options) *datacentre.Datacentre {
	t.Helper()

	d, err := datacentre.Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })

	return d
}

// exitStatus waits for a task and returns its exit status.
func exitStatus(t *testing.T, d *datacentre.Datacentre, upid string, err error) string {
	t.Helper()
	require.NoError(t, err)

	task, err := d.WaitTask(t.Context(), upid)
	require.NoError(t, err)

	return task.ExitStatus
}

func requireOK(t *testing.T, d *datacentre.Datacentre) func(upid string, err error) {
	t.Helper()

	return func(upid string, err error) {
		t.Helper()
		require.Equal(t, "OK", exitStatus(t, d, upid, err))
	}
}

// basicVM is a VM with a disk and a network card.
func basicVM(more datacentre.Config) datacentre.Config {
	c := datacentre.Config{
		"name":   "vm",
		"cores":  "2",
		"memory": "2048",
		"scsihw": "virtio-scsi-pci",
		"scsi0":  "local-lvm:20,discard=on",
		"net0":   "virtio,bridge=vmbr0",
	}
	maps.Copy(c, more)

	return c
}

// createTemplate creates a Talos template of a downloaded image on a storage.
func createTemplate(t *testing.T, d *datacentre.Datacentre, vmid int, store string) {
	t.Helper()

	do := requireOK(t, d)

	if _, ok := d.Volume("pve1", "local:iso/talos.img"); !ok {
		do(
			d.Download(
				root, "pve1", "local",
				datacentre.Config{"url": "https://factory.lab/talos", "content": "iso", "filename": "talos.img"},
			),
		)
	}

	do(d.CreateVM(root, "pve1", vmid, basicVM(datacentre.Config{
		"name":     "talos-template",
		"scsi0":    store + ":0,import-from=/var/lib/vz/template/iso/talos.img,discard=on",
		"efidisk0": store + ":1,efitype=4m",
	})))
	do(d.ConvertToTemplate(root, "pve1", vmid))
}

// fakeGuests records its calls.
type fakeGuests struct {
	mu  sync.Mutex
	on  map[int]datacentre.Hardware
	off []int
}

func newFakeGuests() *fakeGuests { return &fakeGuests{on: map[int]datacentre.Hardware{}} }

func (g *fakeGuests) PowerOn(vm datacentre.Hardware) {
	g.mu.Lock()
	defer g.mu.Unlock()

	g.on[vm.VMID] = vm
}

func (g *fakeGuests) PowerOff(vmid int) {
	g.mu.Lock()
	defer g.mu.Unlock()

	delete(g.on, vmid)
	g.off = append(g.off, vmid)
}

func (g *fakeGuests) Agent(vmid int) ([]datacentre.AgentInterface, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()

	_, ok := g.on[vmid]

	return []datacentre.AgentInterface{
		{Name: "eth0", MAC: "02:00:00:00:00:01", Addresses: []netip.Prefix{netip.MustParsePrefix("127.30.1.5/24")}},
	}, ok
}

func (g *fakeGuests) Serial(_ context.Context, _ int, line func(string) error) error {
	return line("a console")
}

func (g *fakeGuests) running(vmid int) (datacentre.Hardware, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()

	hw, ok := g.on[vmid]

	return hw, ok
}
