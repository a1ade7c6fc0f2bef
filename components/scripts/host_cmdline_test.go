package scripts

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/spec"
)

func grubHost(line string) hostSpec {
	return hostSpec{loader: "grub", cmdline: "GRUB_DEFAULT=0\n" + line + "\nGRUB_TERMINAL=console\n"}
}

func TestKernelCommandLine(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		machine hostSpec
		line    string // the changed line of GRUB's file, or the whole of systemd-boot's
	}{
		"double quotes and a comment": {
			grubHost(`GRUB_CMDLINE_LINUX_DEFAULT="quiet splash" # mine`),
			`GRUB_CMDLINE_LINUX_DEFAULT="quiet splash iommu=pt" # mine`,
		},
		"single quotes": {grubHost(`GRUB_CMDLINE_LINUX_DEFAULT='quiet'`), `GRUB_CMDLINE_LINUX_DEFAULT='quiet iommu=pt'`},
		"no quotes":     {grubHost(`GRUB_CMDLINE_LINUX_DEFAULT=quiet`), `GRUB_CMDLINE_LINUX_DEFAULT="quiet iommu=pt"`},
		"nothing in it": {grubHost(`GRUB_CMDLINE_LINUX_DEFAULT=`), `GRUB_CMDLINE_LINUX_DEFAULT="iommu=pt"`},
		"empty quotes, indented": {
			grubHost(`  export GRUB_CMDLINE_LINUX_DEFAULT=""`), `  export GRUB_CMDLINE_LINUX_DEFAULT="iommu=pt"`,
		},
		"escaped quotes within": {
			grubHost(`GRUB_CMDLINE_LINUX_DEFAULT="quiet dyndbg=\"file a.c +p\""`),
			`GRUB_CMDLINE_LINUX_DEFAULT="quiet dyndbg=\"file a.c +p\" iommu=pt"`,
		},
		"blanks of all kinds": {
			grubHost("GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\t  splash \"  "),
			"GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\t  splash iommu=pt\"  ",
		},
		"the line appends": {
			grubHost(`GRUB_CMDLINE_LINUX_DEFAULT+=" quiet"`), `GRUB_CMDLINE_LINUX_DEFAULT+=" quiet iommu=pt"`,
		},
		"words after two dashes are for init": {
			grubHost(`GRUB_CMDLINE_LINUX_DEFAULT="quiet -- single"`), `GRUB_CMDLINE_LINUX_DEFAULT="quiet iommu=pt -- single"`,
		},
		"nothing but words for init": {
			grubHost(`GRUB_CMDLINE_LINUX_DEFAULT="-- single"`), `GRUB_CMDLINE_LINUX_DEFAULT="iommu=pt -- single"`,
		},
		"a word that only begins the same": {
			grubHost(`GRUB_CMDLINE_LINUX_DEFAULT="iommu=ptx"`), `GRUB_CMDLINE_LINUX_DEFAULT="iommu=ptx iommu=pt"`,
		},
		"a word that does the same": {
			grubHost(`GRUB_CMDLINE_LINUX_DEFAULT="iommu=pt,nomerge"`), `GRUB_CMDLINE_LINUX_DEFAULT="iommu=pt,nomerge"`,
		},
		"the word is in the other variable": {
			grubHost("GRUB_CMDLINE_LINUX=\"iommu=pt\"\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet\""),
			"GRUB_CMDLINE_LINUX=\"iommu=pt\"\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"",
		},
		"of several lines the last counts": {
			grubHost("GRUB_CMDLINE_LINUX_DEFAULT=\"a\"\nGRUB_CMDLINE_LINUX_DEFAULT=\"b\""),
			"GRUB_CMDLINE_LINUX_DEFAULT=\"a\"\nGRUB_CMDLINE_LINUX_DEFAULT=\"b iommu=pt\"",
		},
		"a line that is commented out is ignored": {
			grubHost("GRUB_CMDLINE_LINUX_DEFAULT=\"b\"\n#GRUB_CMDLINE_LINUX_DEFAULT=\"a\""),
			"GRUB_CMDLINE_LINUX_DEFAULT=\"b iommu=pt\"\n#GRUB_CMDLINE_LINUX_DEFAULT=\"a\"",
		},
		"a variable and a command are kept": {
			grubHost(`GRUB_CMDLINE_LINUX_DEFAULT="quiet $MORE $(cat /x) *"`),
			`GRUB_CMDLINE_LINUX_DEFAULT="quiet $MORE $(cat /x) * iommu=pt"`,
		},
		"no line at all":                  {grubHost("GRUB_TIMEOUT=5"), "GRUB_TIMEOUT=5"},
		"systemd-boot, blanks at the end": {hostSpec{cmdline: zfsRoot + "  \n"}, zfsRoot + " iommu=pt  \n"},
		"systemd-boot, empty lines around": {
			hostSpec{cmdline: "\n" + zfsRoot + "\n\n"}, "\n" + zfsRoot + " iommu=pt\n\n",
		},
		"systemd-boot, a pattern among the words": {
			hostSpec{cmdline: "a=* b=[x] " + zfsRoot + "\n"}, "a=* b=[x] " + zfsRoot + " iommu=pt\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := newFakeHost(t, test.machine)
			before, file := host.snapshot(false), kernelFile

			expected := test.line
			if test.machine.loader == "grub" {
				file, expected = grubFile, "GRUB_DEFAULT=0\n"+test.line+"\nGRUB_TERMINAL=console\n"
				if name == "no line at all" {
					expected += "GRUB_CMDLINE_LINUX_DEFAULT=\"iommu=pt\"\n"
				}
			}

			host.apply(preparedHost())
			assert.Equal(t, expected, host.read(file))
			assert.Empty(t, host.facts(preparedHost()).Changes)
			host.restore(preparedHost())
			host.assertUnchanged(before, false, "removed again")
		})
	}
}

func TestRestoreKeepsOtherArguments(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		machine          hostSpec
		edited, restored string
	}{
		"systemd-boot": {hostSpec{}, zfsRoot + " mitigations=off iommu=pt nosmt\n", zfsRoot + " mitigations=off nosmt\n"},
		"GRUB": {
			grubHost(`GRUB_CMDLINE_LINUX_DEFAULT="quiet"`), "GRUB_DEFAULT=1\nGRUB_CMDLINE_LINUX_DEFAULT=\"iommu=pt quiet nosmt\"\n",
			"GRUB_DEFAULT=1\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet nosmt\"\n",
		},
		"the word alone": {
			grubHost(`GRUB_CMDLINE_LINUX_DEFAULT=""`), "GRUB_CMDLINE_LINUX_DEFAULT=\"iommu=pt\" # mine\n",
			"GRUB_CMDLINE_LINUX_DEFAULT=\"\" # mine\n",
		},
		"the word was taken": {
			grubHost(`GRUB_CMDLINE_LINUX_DEFAULT=""`), "GRUB_CMDLINE_LINUX_DEFAULT=\"nosmt\"\n",
			"GRUB_CMDLINE_LINUX_DEFAULT=\"nosmt\"\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			host, file := newFakeHost(t, test.machine), kernelFile
			if test.machine.loader == "grub" {
				file = grubFile
			}

			host.apply(preparedHost())
			host.write(file, test.edited)
			host.restore(preparedHost())
			assert.Equal(t, test.restored, host.read(file))
		})
	}
}

func TestRestoreKeepsUserArguments(t *testing.T) {
	t.Parallel()
	host := newFakeHost(t, hostSpec{vendor: "intel", kernel: "6.5.13-6-pve", cmdline: zfsRoot + " iommu=pt\n"})
	host.apply(preparedHost())
	assert.Equal(t, zfsRoot+" iommu=pt intel_iommu=on\n", host.read(kernelFile))
	host.write(kernelFile, zfsRoot+" iommu=pt intel_iommu=on nosmt\n")
	host.restore(preparedHost())
	assert.Equal(t, zfsRoot+" iommu=pt nosmt\n", host.read(kernelFile))
}

func TestBootLoaderDetection(t *testing.T) {
	t.Parallel()

	systemd := `initrd=\EFI\proxmox\6.17.2-1-pve\initrd.img-6.17.2-1-pve ` + zfsRoot + "\n"

	for name, test := range map[string]struct {
		loader string
		change func(*fakeHost)
		want   string
	}{
		"the firmware's entry": {"systemd-boot", func(*fakeHost) {}, "systemd-boot"},
		"the firmware's entry before what is configured": {"systemd-boot", func(host *fakeHost) {
			host.setOutput("efibootmgr -v", "BootCurrent: 0004\nBoot0001* Linux Boot Manager\tHD()/File(\\EFI\\SYSTEMD\\SYSTEMD-BOOTX64.EFI)\nBoot0004* proxmox\tHD()/\\EFI\\PROXMOX\\GRUBX64.EFI\n")
		}, "grub"},
		"the running command line where the firmware's entry says nothing": {"systemd-boot", func(host *fakeHost) {
			host.setOutput("efibootmgr -v", "BootCurrent: 0007\nBoot0007* UEFI OS\tHD()/File(\\EFI\\BOOT\\BOOTX64.EFI)\n")
			host.setOutput(
				"proxmox-boot-tool status",
				"8A3C-1234 is configured with: uefi (versions: 6.17.2-1-pve), grub (versions: 6.17.2-1-pve)\n",
			)
		}, "systemd-boot"},
		"GRUB by the running command line": {
			"grub", func(host *fakeHost) {
				host.setOutput("efibootmgr -v", "EFI variables are not supported on this system.\n")
			}, "grub",
		},
		"what proxmox-boot-tool is configured with, last": {"systemd-boot", func(host *fakeHost) {
			host.setOutput("efibootmgr -v", "")
			host.write("proc/cmdline", zfsRoot+"\n")
		}, "systemd-boot"},
		"BIOS": {"grub-by-tool", func(host *fakeHost) { require.NoError(host.t, os.RemoveAll(host.path("sys/firmware/efi"))) }, "grub"},
		"none": {"systemd-boot", func(host *fakeHost) {
			host.setOutput("efibootmgr -v", "")
			host.setOutput("proxmox-boot-tool status", "")
			host.write("proc/cmdline", zfsRoot+"\n")
		}, ""},
		"an entry without a star": {"systemd-boot", func(host *fakeHost) {
			host.setOutput(
				"efibootmgr -v",
				"BootCurrent: 0001\nBoot0001  Linux Boot Manager\tHD()/File(\\EFI\\SYSTEMD\\SYSTEMD-BOOTX64.EFI)\n",
			)
			host.write("proc/cmdline", systemd)
		}, "systemd-boot"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := newFakeHost(t, hostSpec{loader: test.loader})
			test.change(host)
			r := host.mustRun(ActionFacts, preparedHost())
			assert.Contains(t, r.stdout, `"bootLoader":"`+test.want+`"`)

			if test.want == "" {
				assert.Contains(t, parsePrep(t, r).Problems[0], "the boot loader could not be found out")
			}
		})
	}
}

func TestBootLoaderChangeRestoresTheOtherFile(t *testing.T) {
	t.Parallel()
	host := newFakeHost(t, hostSpec{loader: "grub-by-tool"})
	host.apply(preparedHost())
	require.Contains(t, host.read(grubFile), "iommu=pt")
	host.setOutput(
		"efibootmgr -v", "BootCurrent: 0001\nBoot0001* Linux Boot Manager\tHD()/File(\\EFI\\SYSTEMD\\SYSTEMD-BOOTX64.EFI)\n",
	)

	done := host.apply(preparedHost())
	assert.Equal(t, []string{"/etc/default/grub", "/etc/kernel/cmdline"}, done.Applied)
	assert.Equal(t, grubText, host.read(grubFile))
	assert.Equal(t, zfsRoot+" iommu=pt\n", host.read(kernelFile))
}

func TestApplyRemovesDisabledSettings(t *testing.T) {
	t.Parallel()

	m := hostSpec{gpu: true, zfs: true}
	host := newFakeHost(t, m)
	before := host.snapshot(false)
	host.apply(m.specHost(func(h *spec.Host) { h.Prep.Repositories = "no-subscription" }))

	done := host.apply(m.specHost(func(h *spec.Host) { h.Prep.IOMMU = false; h.Prep.ZFSArcMaxGiB = new(0.0) }))
	assert.Equal(t, 2, done.Revision)

	for _, file := range []string{
		kernelFile, vfioFile, zfsFile, "etc/modules-load.d/vfio.conf", "etc/modprobe.d/blacklist-gpu.conf", arcMax,
		"etc/apt/sources.list.d/pve-enterprise.sources",
	} {
		assert.Equal(t, before["/"+file], host.snapshot(false)["/"+file], file)
	}

	assert.Empty(t, host.facts(m.specHost(func(h *spec.Host) {
		h.Prep.IOMMU = false
		h.Prep.ZFSArcMaxGiB = new(0.0)
	})).Changes)
}
