package datacentre_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/image"
)

func TestConfiguration(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		given datacentre.Config
		want  datacentre.Config
	}{
		"a disk becomes a volume with its size": {
			datacentre.Config{"scsi0": "local-lvm:20,discard=on"},
			datacentre.Config{"scsi0": "local-lvm:vm-100-disk-0,discard=on,size=20G", "boot": "order=scsi0"},
		},
		"a file= disk with a format and a size in bytes is rewritten": {
			datacentre.Config{"scsi0": "file=local-zfs:8,format=raw,size=8589934592,ssd=1,"},
			datacentre.Config{"scsi0": "local-zfs:vm-100-disk-0,size=8G,ssd=1"},
		},
		"a cloud-init drive becomes a CD-ROM": {
			datacentre.Config{"ide2": "file=local-lvm:cloudinit,media=cdrom"},
			datacentre.Config{"ide2": "local-lvm:vm-100-cloudinit,media=cdrom"},
		},
		"an EFI disk has the size of its storage's extents": {
			datacentre.Config{"efidisk0": "local-lvm:1,efitype=4m"},
			datacentre.Config{"efidisk0": "local-lvm:vm-100-disk-0,efitype=4m,size=4M"},
		},
		"an empty CD-ROM stays": {
			datacentre.Config{"ide0": "file=none,media=cdrom"}, datacentre.Config{"ide0": "none,media=cdrom"},
		},
		"a card's model and address become one": {
			datacentre.Config{"net0": "model=virtio,bridge=vmbr0,macaddr=02:00:00:00:00:01,firewall=0"},
			datacentre.Config{"net0": "virtio=02:00:00:00:00:01,bridge=vmbr0,firewall=0", "boot": "order=net0"},
		},
		"booleans become numbers": {
			datacentre.Config{"onboot": "yes", "tablet": "off"}, datacentre.Config{"onboot": "1", "tablet": "0"},
		},
		"a stated boot order stays": {
			datacentre.Config{"scsi0": "local-lvm:1", "boot": "order=scsi0;ide2"}, datacentre.Config{"boot": "order=scsi0;ide2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			d := open(t, fastOptions())
			ok(t, d)(d.CreateVM(root, "pve1", 100, tc.given))

			vm, found := d.VM(100)
			require.True(t, found)

			for k, v := range tc.want {
				assert.Equal(t, v, vm.Config[k], k)
			}

			assert.Contains(t, vm.Config["smbios1"], "uuid=")
			assert.NotEmpty(t, vm.Config["vmgenid"])
			assert.Contains(t, vm.Config["meta"], "ctime=")
			assert.NotContains(t, vm.Config, "lock")
			assert.Len(t, vm.Digest, 40)
		})
	}
}

func TestClones(t *testing.T) {
	t.Parallel()

	linked, full := false, true

	for name, tc := range map[string]struct {
		store string
		full  *bool
		disk  string
		base  string
	}{
		"a full clone has its own copy": {"local-lvm", &full, "local-lvm:vm-101-disk-1", ""},
		"a linked clone on LVM stands on the base": {
			"local-lvm", &linked, "local-lvm:vm-101-disk-1", "local-lvm:base-900-disk-1",
		},
		"a linked clone on ZFS names the base": {
			"local-zfs", &linked, "local-zfs:base-900-disk-1/vm-101-disk-1", "local-zfs:base-900-disk-1",
		},
		"a clone of a template is linked unless told else": {
			"local-zfs", nil, "local-zfs:base-900-disk-1/vm-101-disk-1", "local-zfs:base-900-disk-1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			d := open(t, fastOptions())
			template(t, d, 900, tc.store)
			ok(t, d)(d.CloneVM(root, "pve1", 900, datacentre.CloneRequest{NewID: 101, Name: "node", Full: tc.full}))

			source, _ := d.VM(900)
			clone, _ := d.VM(101)
			disk := datacentre.ParseProperties(clone.Config["scsi0"], "file").Get("file")

			assert.Equal(t, tc.disk, disk)
			assert.Equal(t, "node", clone.Name)
			assert.False(t, clone.Template)
			assert.Empty(t, clone.Lock)
			assert.NotEqual(t, source.Config["smbios1"], clone.Config["smbios1"])
			assert.NotEqual(t, source.Config["net0"], clone.Config["net0"])
			assert.True(t, source.Template)

			volume, _ := d.Volume("pve1", disk)
			assert.Equal(t, tc.base, volume.Base)

			img, err := d.ReadVolume(disk)
			require.NoError(t, err)
			assert.Equal(t, talos, img)

			written := img
			written.State = []byte(`{"installed":true}`)
			require.NoError(t, d.WriteVolume(disk, written))

			again, err := d.ReadVolume(datacentre.ParseProperties(source.Config["scsi0"], "file").Get("file"))
			require.NoError(t, err)
			assert.Equal(t, talos, again, "what the clone writes stays its own")
		})
	}
}

// TestClonesSayWhatTheirSourceSays clones with and without a name and their own description.
func TestClonesSayWhatTheirSourceSays(t *testing.T) {
	t.Parallel()

	d := open(t, fastOptions())
	template(t, d, 900, "local-lvm")
	require.NoError(t, d.SetConfig(root, "pve1", 900, datacentre.Config{"description": "a template"}, nil))

	do := ok(t, d)
	do(d.CloneVM(root, "pve1", 900, datacentre.CloneRequest{NewID: 101}))
	do(d.CloneVM(root, "pve1", 900, datacentre.CloneRequest{NewID: 102, Name: "node", Description: "a node"}))

	same, _ := d.VM(101)
	assert.Equal(t, "Copy-of-VM-talos-template", same.Name)
	assert.Equal(t, "a template", same.Config["description"])

	own, _ := d.VM(102)
	assert.Equal(t, "node", own.Name)
	assert.Equal(t, "a node", own.Config["description"])
}

func TestHardwareIsWhatTheMachineWasSwitchedOnWith(t *testing.T) {
	t.Parallel()

	d := open(t, fastOptions())
	do, g := ok(t, d), newGuests()
	d.SetGuests(g)
	do(
		d.Download(
			root, "pve1", "local",
			datacentre.DownloadRequest{URL: "https://factory.lab/talos", Content: "iso", Filename: "talos.iso"},
		),
	)
	do(d.CreateVM(root, "pve1", 100, basic(datacentre.Config{
		"name":         "cp-1",
		"ide0":         "local:iso/talos.iso,media=cdrom",
		"sockets":      "2",
		"net0":         "virtio=BC:24:11:00:00:01,bridge=vmbr0,mtu=1400,tag=7",
		"ide2":         "local-lvm:cloudinit",
		"ipconfig0":    "ip=127.30.1.10/24,gw=127.30.1.1",
		"nameserver":   "127.30.1.1 127.30.1.2",
		"searchdomain": "lab.internal",
		"agent":        "enabled=1",
		"boot":         "order=scsi0;ide0;net0", "smbios1": "uuid=6e1c0f9e-0000-4000-8000-000000000001",
	})))
	do(d.Start(root, "pve1", 100))

	hw, on := g.running(100)
	require.True(t, on)

	disk := datacentre.GuestDisk{Interface: "scsi0", Volume: "local-lvm:vm-100-disk-0", SizeBytes: 20 * datacentre.GiB}
	iso := datacentre.GuestDisk{
		Interface: "ide0", Volume: "local:iso/talos.iso", SizeBytes: int64(len(talos.Encode())), CDROM: true,
	}
	assert.Equal(t, datacentre.Hardware{
		Host: "pve1", VMID: 100, Name: "cp-1", UUID: "6e1c0f9e-0000-4000-8000-000000000001", Cores: 4, MemoryMiB: 2048,
		NICs: []datacentre.NIC{
			{Name: "net0", Model: "virtio", MAC: "bc:24:11:00:00:01", Bridge: "vmbr0", VLAN: 7, MTU: 1400},
		},
		Disks: []datacentre.GuestDisk{iso, disk}, Boot: []datacentre.GuestDisk{disk, iso},
		CloudInit: &datacentre.CloudInit{
			Drive:    "ide2",
			Hostname: "cp-1",
			DNS:      []netip.Addr{netip.MustParseAddr("127.30.1.1"), netip.MustParseAddr("127.30.1.2")},
			Search:   []string{"lab.internal"},
			Interfaces: []datacentre.CloudInitInterface{{
				MAC:     "bc:24:11:00:00:01",
				Address: netip.MustParsePrefix("127.30.1.10/24"),
				Gateway: netip.MustParseAddr("127.30.1.1"),
			}},
			Upgrade: true,
		},
		Firmware:     "seabios",
		AgentEnabled: true,
	}, hw)

	require.NoError(t, d.SetConfig(root, "pve1", 100, datacentre.Config{"memory": "4096"}, nil))

	vm, _ := d.VM(100)
	assert.Equal(t, 2048, vm.Hardware.MemoryMiB, "a change waits for the next power cycle")
	do(d.Reboot(root, "pve1", 100, datacentre.ShutdownOptions{}))

	hw, _ = g.running(100)
	assert.Equal(t, 4096, hw.MemoryMiB)

	ifaces, err := d.Agent("pve1", 100)
	require.NoError(t, err)
	assert.Equal(t, "eth0", ifaces[0].Name)

	do(d.Shutdown(root, "pve1", 100, datacentre.ShutdownOptions{ForceStop: true}))

	_, on = g.running(100)
	assert.False(t, on)

	_, err = d.Agent("pve1", 100)
	require.ErrorContains(t, err, "VM 100 is not running")
	do(d.Start(root, "pve1", 100))
	d.GuestShutdown(100)

	vm, _ = d.VM(100)
	assert.False(t, vm.Running, "a guest can switch itself off")
}

func TestDisks(t *testing.T) {
	t.Parallel()

	d := open(t, fastOptions())
	do := ok(t, d)
	do(d.CreateVM(root, "pve1", 100, basic(nil)))
	do(d.ResizeDisk(root, "pve1", 100, "scsi0", "40G"))
	do(d.ResizeDisk(root, "pve1", 100, "scsi0", "+2G"))
	do(d.MoveDisk(root, "pve1", 100, datacentre.MoveRequest{Disk: "scsi0", Storage: "local-zfs", Delete: true}))

	vm, _ := d.VM(100)
	assert.Equal(t, "local-zfs:vm-100-disk-0,discard=on,size=42G", vm.Config["scsi0"])
	assert.Empty(t, d.Volumes("pve1", "local-lvm", ""))

	require.NoError(t, d.SetConfig(root, "pve1", 100, datacentre.Config{"scsi1": "local-lvm:5"}, []string{"scsi0"}))

	vm, _ = d.VM(100)
	assert.Equal(t, "local-zfs:vm-100-disk-0", vm.Config["unused0"], "a detached disk is kept")
	assert.Equal(t, "local-lvm:vm-100-disk-0,size=5G", vm.Config["scsi1"])

	require.NoError(t, d.SetConfig(root, "pve1", 100, datacentre.Config{"scsi2": "local-zfs:vm-100-disk-0"}, nil))

	vm, _ = d.VM(100)
	assert.NotContains(t, vm.Config, "unused0", "an attached disk is in use again")

	do(d.DestroyVM(root, "pve1", 100, datacentre.DestroyOptions{Purge: true, DestroyUnreferencedDisks: true}))
	assert.Empty(t, d.VMs())
	assert.Empty(t, d.Volumes("pve1", "local-zfs", ""))
	assert.Empty(t, d.Volumes("pve1", "local-lvm", ""))
}

func TestImportDisk(t *testing.T) {
	t.Parallel()

	o := fastOptions()

	o.Hosts[0].Storages = append(datacentre.DefaultStorages(), datacentre.StorageOptions{
		Name:      "files",
		Type:      "dir",
		Path:      "/srv/files",
		Content:   []string{"images", "import"},
		SizeBytes: 100 * datacentre.GiB,
	})
	d := open(t, o)
	do := ok(t, d)
	do(d.CreateVM(root, "pve1", 100, datacentre.Config{"name": "vm"}))
	do(d.Upload(root, "pve1", "files", "import", "talos.raw", talos.Encode()))
	do(d.ImportDisk(root, "pve1", 100, "files:import/talos.raw", "files"))

	vm, _ := d.VM(100)
	assert.Equal(t, "files:100/vm-100-disk-0.raw", vm.Config["unused0"])
	require.NoError(t, d.SetConfig(root, "pve1", 100, datacentre.Config{"virtio0": vm.Config["unused0"]}, nil))

	img, err := d.ReadVolume("files:100/vm-100-disk-0.raw")
	require.NoError(t, err)
	assert.Equal(t, talos, img)

	do(d.Upload(root, "pve1", "files", "import", "packed.raw", []byte{0x28, 0xb5, 0x2f, 0xfd, 0}))
	do(d.ImportDisk(root, "pve1", 100, "files:import/packed.raw", "local-lvm"))

	_, err = d.ReadVolume("local-lvm:vm-100-disk-0")
	require.Error(t, err, "nothing boots from bytes that no one decompressed")
	require.NoError(t, d.WriteVolume("local-lvm:vm-100-disk-0", image.Image{OS: "talos"}))

	img, err = d.ReadVolume("local-lvm:vm-100-disk-0")
	require.NoError(t, err)
	assert.Equal(t, "talos", img.OS)
}

func TestAMachineWithoutASystemIsStoppedByForceOnly(t *testing.T) {
	t.Parallel()

	d := open(t, fastOptions())
	do := ok(t, d)
	do(d.CreateVM(root, "pve1", 100, basic(nil)))
	do(d.Start(root, "pve1", 100))
	do(d.Shutdown(root, "pve1", 100, datacentre.ShutdownOptions{ForceStop: true}))

	vm, _ := d.VM(100)
	assert.False(t, vm.Running)
	do(d.Stop(root, "pve1", 100))
	do(d.Shutdown(root, "pve1", 100, datacentre.ShutdownOptions{}))
}
