package hostos_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/hostos"
)

func device(address, bus, class, ids, driver string, group int) datacentre.PCIDevice {
	return datacentre.PCIDevice{
		Address:         address,
		Bus:             bus,
		Class:           class,
		VendorID:        "0x" + ids[:4],
		DeviceID:        "0x" + ids[5:],
		SubsystemVendor: "0x10de",
		SubsystemDevice: "0x16fa",
		Driver:          driver, IOMMUGroup: group,
	}
}

func zfsHost() datacentre.HostOptions {
	return datacentre.HostOptions{
		Name: "pve1", Cores: 4, MemoryMiB: 96 * 1024, Pools: []datacentre.ZPool{{Name: "rpool", Root: true}},
		PCI: []datacentre.PCIDevice{
			device("0000:00:01.1", "", "0x060400", "1022:14db", "pcieport", 2),
			device("0000:01:00.0", "0000:00:01.1", "0x030000", "10de:27b0", "nouveau", 13),
			device("0000:01:00.1", "0000:00:01.1", "0x040300", "10de:22bc", "snd_hda_intel", 13),
		},
	}
}

// host is a host with its disk.
type host struct {
	dc     *datacentre.Datacentre
	system hostos.System
	root   string
}

func newHost(t *testing.T, o datacentre.HostOptions) *host {
	t.Helper()

	h := &host{root: filepath.Join(t.TempDir(), "pve1")}

	o.Root = h.root

	var err error

	h.dc, err = datacentre.Open(
		datacentre.Options{
			Hosts: []datacentre.HostOptions{o}, Clock: datacentre.NewClock(10000), Durations: datacentre.DefaultDurations(),
		},
	)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, h.dc.Close()) })

	require.NoError(t, h.system.Install(h.view(t)))
	require.NoError(t, h.dc.SetHostSystem(h.system))

	return h
}

func (h *host) view(t *testing.T) datacentre.Host {
	t.Helper()

	v, known := h.dc.Host("pve1")
	require.True(t, known)

	return v
}

// bash runs a script with this machine's own bash against the tree.
func (h *host) bash(t *testing.T, script string) string {
	t.Helper()

	command := exec.Command("bash", "-euo", "pipefail", "-c", script) //nolint:gosec // the test's own script

	command.Env = append(os.Environ(), "root="+h.root)
	out, err := command.CombinedOutput()
	require.NoError(t, err, string(out))

	return string(out)
}

func TestADiskIsInstalledOnce(t *testing.T) {
	t.Parallel()

	h := newHost(t, zfsHost())
	h.bash(t, `rm $root/etc/apt/sources.list.d/ceph.sources; echo changed >$root/etc/default/grub`)
	require.NoError(t, h.system.Install(h.view(t)))
	assert.Equal(t, "changed\n", h.bash(t, `ls $root/etc/apt/sources.list.d | grep ceph || cat $root/etc/default/grub`))

	// A disk of an older lab has some files, which stay.
	old := filepath.Join(t.TempDir(), "old")
	require.NoError(t, os.MkdirAll(filepath.Join(old, "etc/default"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(old, "etc/default/grub"), []byte("mine\n"), 0o600))

	o := h.view(t)
	o.Root = old
	require.NoError(t, h.system.Install(o))

	text, err := os.ReadFile(filepath.Join(old, "etc/default/grub"))
	require.NoError(t, err)
	assert.Equal(t, "mine\n", string(text))
	assert.FileExists(t, filepath.Join(old, "etc/kernel/proxmox-boot-uuids"))
}
