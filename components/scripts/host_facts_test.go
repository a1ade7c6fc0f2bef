package scripts

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/hostfacts"
)

func (host *fakeHost) allFacts() *hostfacts.Facts {
	host.t.Helper()
	r := host.mustRun(ActionFacts, preparedHost(withGPU))
	require.True(host.t, json.Valid([]byte(r.stdout)), r.stdout)
	facts, err := hostfacts.Parse([]byte(r.stdout))
	require.NoError(host.t, err)

	return facts
}

func TestFacts(t *testing.T) {
	t.Parallel()
	host := newFakeHost(t, hostSpec{gpu: true, zfs: true, files: map[string]string{
		"sys/bus/usb/devices/usb1/idVendor": "1d6b\n", "sys/bus/usb/devices/1-4:1.0/bInterfaceClass": "ff\n",
		"sys/bus/usb/devices/1-4/idVendor": "10c4\n", "sys/bus/usb/devices/1-4/idProduct": "ea60\n",
		"sys/bus/usb/devices/1-4/manufacturer": "Silicon \"Labs\"\n", "sys/bus/usb/devices/1-4/product": "CP2102N\n",
		"sys/bus/usb/devices/1-7/idVendor": "05e3\n", "sys/bus/usb/devices/1-7/bDeviceClass": "09\n",
		"sys/bus/usb/devices/1-7.2/idVendor": "0658\n", "sys/bus/usb/devices/1-7.2/idProduct": "0200\n",
	}})
	host.setOutput("pvesh get /nodes/pve1/qemu", `[{"vmid":101,"name":"db","status":"running","maxmem":4294967296}]`+"\n")
	facts := host.allFacts()

	assert.Equal(t, hostfacts.System{
		Hostname:           "pve1",
		Node:               "pve1",
		Quorate:            true,
		PVE:                "9.1.1",
		Kernel:             "6.17.2-1-pve",
		CPUVendor:          "amd",
		CPUModel:           `A "fast" CPU`,
		Cores:              16,
		MemoryKiB:          96 << 20,
		AvailableKiB:       48 << 20,
		UEFI:               true,
		BootLoader:         "systemd-boot",
		BootLoaderEvidence: "the firmware started entry 0001, systemd-boot",
		CommandLineFile:    "/etc/kernel/cmdline",
		CommandLine:        `initrd=\EFI\proxmox\6.17.2-1-pve\initrd.img-6.17.2-1-pve ` + zfsRoot,
		BootID:             "6fd5bd1a-0f0f-4c0c-8a8a-000000000001",
	}, facts.System)
	assert.Equal(t, hostfacts.IOMMU{Firmware: []string{"IVRS"}, Groups: 2}, facts.IOMMU)
	assert.Equal(t, []hostfacts.Device{{
		Address:         "0000:01:00.0",
		Vendor:          "10de",
		Device:          "27b0",
		Class:           "030000",
		SubsystemVendor: "10de",
		SubsystemDevice: "16fa",
		Group:           "12",
		Driver:          "nouveau",
		Name:            "VGA compatible controller [0300]: NVIDIA Corporation AD104GL [RTX 4000 SFF Ada Generation] [10de:27b0] (rev a1)",
	}}, facts.Functions("0000:01:00.0"))
	assert.Len(t, facts.Functions("0000:01:00"), 2)
	assert.Equal(t, []hostfacts.USBDevice{
		{Port: "1-4", ID: "10c4:ea60", Name: `Silicon "Labs" CP2102N`}, {Port: "1-7.2", ID: "0658:0200"},
	}, facts.USB)
	assert.Equal(t, []hostfacts.Pool{{
		Name:        "rpool",
		Size:        1992864825344,
		Free:        1500000000000,
		Health:      "ONLINE",
		Ashift:      12,
		Compression: "on",
		Xattr:       "on",
		Vdevs:       []string{"mirror-0"},
	}}, facts.ZFS.Pools)
	assert.Equal(t, int64(10307502080), facts.ZFS.ARCWanted)
	assert.Equal(t, []hostfacts.Storage{{Name: "local", Content: "iso,vztmpl", Type: "dir", Active: 1}}, facts.Storages)
	assert.Equal(t, []string{"101"}, facts.Running())
	assert.Equal(
		t,
		[]string{
			"the kernel runs without iommu=pt", "0000:01:00.0 is bound to nouveau", "0000:01:00.1 is bound to snd_hda_intel",
		},
		facts.Prep.Pending,
	)
	assert.True(t, facts.RebootRequired())
	assert.Equal(t, 1, facts.NextRevision())
}

func TestFactsOfIncompleteHosts(t *testing.T) {
	t.Parallel()
	t.Run("without Proxmox' commands", func(t *testing.T) {
		t.Parallel()

		host := newFakeHost(t, hostSpec{gpu: true})
		for _, command := range []string{
			"pvesh", "lspci", "efibootmgr", "proxmox-boot-tool", "mokutil", "qm", "pct", "zpool", "zfs",
		} {
			require.NoError(t, os.RemoveAll(host.commands+"/"+command))
		}

		facts := host.allFacts()
		assert.Nil(t, facts.Storages)
		assert.Nil(t, facts.Machines)
		assert.Empty(t, facts.ZFS.Pools)
		assert.Equal(t, "systemd-boot", facts.System.BootLoader, "by the running command line")
	})
	t.Run("another host is reported, not refused", func(t *testing.T) {
		t.Parallel()
		host := newFakeHost(t, hostSpec{gpu: true})
		host.setName("pve2.example.org", "pve3")
		host.setOutput("pvesh get /nodes/pve3/qemu", `[{"vmid":101,"status":"running"}]`+"\n")
		facts := host.allFacts()
		assert.Equal(t, "pve2", facts.System.Hostname)
		assert.Equal(t, "pve3", facts.System.Node)
		assert.Equal(t, []string{"101"}, facts.Running(), "by the name that Proxmox knows")
	})
	t.Run("an API that answers with an error", func(t *testing.T) {
		t.Parallel()
		host := newFakeHost(t, hostSpec{gpu: true})
		host.setOutput("pvesh get /nodes/pve1/storage", "hostname lookup 'pve1' failed\n")
		assert.Nil(t, host.allFacts().Storages)
	})
	t.Run("no IOMMU in the firmware, no groups", func(t *testing.T) {
		t.Parallel()
		host := newFakeHost(t, hostSpec{gpu: true})
		require.NoError(t, os.RemoveAll(host.path("sys/kernel/iommu_groups")))
		require.NoError(t, os.RemoveAll(host.path("sys/firmware/acpi")))
		facts := host.allFacts()
		assert.Equal(t, hostfacts.IOMMU{Firmware: []string{}}, facts.IOMMU)
		assert.Empty(t, facts.Functions("0000:01:00.0")[0].Group)
	})
	t.Run("Secure Boot by mokutil where the variable is hidden", func(t *testing.T) {
		t.Parallel()
		host := newFakeHost(t, hostSpec{gpu: true})
		require.NoError(t, os.RemoveAll(host.path("sys/firmware/efi/efivars")))
		host.setOutput("mokutil --sb-state", "SecureBoot enabled\n")
		assert.True(t, host.allFacts().System.SecureBoot)
	})
	t.Run("Secure Boot by the firmware's variable", func(t *testing.T) {
		t.Parallel()
		assert.True(t, newFakeHost(t, hostSpec{gpu: true, loader: "grub-by-tool", secure: true}).allFacts().System.SecureBoot)
	})
	t.Run("raidz and a single disk, beside logs and spares", func(t *testing.T) {
		t.Parallel()
		host := newFakeHost(t, hostSpec{gpu: true, zfs: true})
		host.setOutput("zpool status", "  pool: rpool\n state: ONLINE\n  scan: none\nconfig:\n\n\tNAME        STATE     READ WRITE CKSUM\n\trpool       ONLINE       0     0     0\n"+
			"\t  raidz1-0  ONLINE       0     0     0\n\t    sda     ONLINE       0     0     0\n\t  sdd       ONLINE       0     0     0\n\tlogs\t\n\t  nvme0n1   ONLINE       0     0     0\n\nerrors: none\n")
		assert.Equal(t, []string{"raidz1-0", "sdd"}, host.allFacts().ZFS.Pools[0].Vdevs)
	})
}

// TestHostileTexts has every byte that a file can contain, and special characters of shells and JSON, in texts that the
// facts repeat.
func TestHostileTexts(t *testing.T) {
	t.Parallel()

	allBytes := make([]byte, 0, 255)

	for b := 1; b < 256; b++ {
		if b != '\n' {
			allBytes = append(allBytes, byte(b))
		}
	}

	for name, text := range map[string]string{
		"every byte":              string(allBytes),
		"quotes and escapes":      `a"b\c\"d\\`,
		"shell syntax":            "$(touch /tmp/never) `id` ${HOME} $0 !! * ? [a-z] ~ ; & | < > ( ) { } #",
		"JSON syntax":             `","prep":{"owner":"x"},"a":["`,
		"a format":                `%s %d %n \n \u0041 %%`,
		"letters beyond ASCII":    "größe 大きい 🖥",
		"a trailing backslash":    `a\`,
		"only control characters": "\x01\x02\x1f\x7f",
		"a very long line":        string(bytes.Repeat([]byte(`x"\`), 20000)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := newFakeHost(t, hostSpec{gpu: true})
			host.write("proc/cmdline", text+"\n")
			host.write("var/lib/talos-proxmox/owner", text+"\n")
			facts := host.allFacts()

			expected := string(bytes.ToValidUTF8([]byte(text), []byte("\uFFFD")))
			if name == "every byte" {
				assert.Len(t, []rune(facts.System.CommandLine), len([]rune(text)), "each invalid byte becomes a character")
				assert.Equal(t, string(allBytes[:126]), facts.System.CommandLine[:126])

				return
			}

			assert.Equal(t, expected, facts.System.CommandLine)
			assert.Equal(t, expected, facts.Prep.Owner)
		})
	}
}

// TestJSONEscape compares the shell's escape with JSON's own for texts of several lines, which facts do not contain.
func TestJSONEscape(t *testing.T) {
	t.Parallel()

	for _, text := range []string{"", "\n", "a\nb\r\n\tc", "\n\n\"\n", "\\n"} {
		cmd := exec.CommandContext(t.Context(), "bash", "-s")
		lib, err := parts.ReadFile("host/lib.sh")
		require.NoError(t, err)

		script := Assignments(
			[]Parameter{{"action", "facts"}, {"host", "pve1"}, {"owner", "x"}, {"root", ""}, {"text", text}},
		) + string(lib) + "\njson \"$text\"\nprintf '%s' \"$REPLY\"\n"
		cmd.Stdin = bytes.NewReader([]byte(script))
		output, err := cmd.Output()
		require.NoError(t, err)

		var decoded string
		require.NoError(t, json.Unmarshal(output, &decoded), string(output))
		assert.Equal(t, text, decoded)
	}
}
