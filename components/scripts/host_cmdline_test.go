package scripts

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/spec"
)

func grub(line string) machine {
	return machine{loader: "grub", cmdline: "GRUB_DEFAULT=0\n" + line + "\nGRUB_TERMINAL=console\n"}
}

func TestKernelCommandLines(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		machine machine
		line    string // the changed line of GRUB's file, or the whole of systemd-boot's
	}{
		"double quotes and a comment": {
			grub(`GRUB_CMDLINE_LINUX_DEFAULT="quiet splash" # mine`),
			`GRUB_CMDLINE_LINUX_DEFAULT="quiet splash iommu=pt" # mine`,
		},
		"single quotes": {grub(`GRUB_CMDLINE_LINUX_DEFAULT='quiet'`), `GRUB_CMDLINE_LINUX_DEFAULT='quiet iommu=pt'`},
		"no quotes":     {grub(`GRUB_CMDLINE_LINUX_DEFAULT=quiet`), `GRUB_CMDLINE_LINUX_DEFAULT="quiet iommu=pt"`},
		"nothing in it": {grub(`GRUB_CMDLINE_LINUX_DEFAULT=`), `GRUB_CMDLINE_LINUX_DEFAULT="iommu=pt"`},
		"empty quotes, indented": {
			grub(`  export GRUB_CMDLINE_LINUX_DEFAULT=""`), `  export GRUB_CMDLINE_LINUX_DEFAULT="iommu=pt"`,
		},
		"escaped quotes within": {
			grub(`GRUB_CMDLINE_LINUX_DEFAULT="quiet dyndbg=\"file a.c +p\""`),
			`GRUB_CMDLINE_LINUX_DEFAULT="quiet dyndbg=\"file a.c +p\" iommu=pt"`,
		},
		"blanks of all kinds": {
			grub("GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\t  splash \"  "),
			"GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\t  splash iommu=pt\"  ",
		},
		"the line appends": {
			grub(`GRUB_CMDLINE_LINUX_DEFAULT+=" quiet"`), `GRUB_CMDLINE_LINUX_DEFAULT+=" quiet iommu=pt"`,
		},
		"words behind two dashes are for init": {
			grub(`GRUB_CMDLINE_LINUX_DEFAULT="quiet -- single"`), `GRUB_CMDLINE_LINUX_DEFAULT="quiet iommu=pt -- single"`,
		},
		"nothing but words for init": {
			grub(`GRUB_CMDLINE_LINUX_DEFAULT="-- single"`), `GRUB_CMDLINE_LINUX_DEFAULT="iommu=pt -- single"`,
		},
		"a word that only begins the same": {
			grub(`GRUB_CMDLINE_LINUX_DEFAULT="iommu=ptx"`), `GRUB_CMDLINE_LINUX_DEFAULT="iommu=ptx iommu=pt"`,
		},
		"a word that does the same": {
			grub(`GRUB_CMDLINE_LINUX_DEFAULT="iommu=pt,nomerge"`), `GRUB_CMDLINE_LINUX_DEFAULT="iommu=pt,nomerge"`,
		},
		"the word is in the other variable": {
			grub("GRUB_CMDLINE_LINUX=\"iommu=pt\"\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet\""),
			"GRUB_CMDLINE_LINUX=\"iommu=pt\"\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"",
		},
		"of several lines the last counts": {
			grub("GRUB_CMDLINE_LINUX_DEFAULT=\"a\"\nGRUB_CMDLINE_LINUX_DEFAULT=\"b\""),
			"GRUB_CMDLINE_LINUX_DEFAULT=\"a\"\nGRUB_CMDLINE_LINUX_DEFAULT=\"b iommu=pt\"",
		},
		"a line that is commented out is none": {
			grub("GRUB_CMDLINE_LINUX_DEFAULT=\"b\"\n#GRUB_CMDLINE_LINUX_DEFAULT=\"a\""),
			"GRUB_CMDLINE_LINUX_DEFAULT=\"b iommu=pt\"\n#GRUB_CMDLINE_LINUX_DEFAULT=\"a\"",
		},
		"a variable and a command are kept": {
			grub(`GRUB_CMDLINE_LINUX_DEFAULT="quiet $MORE $(cat /x) *"`),
			`GRUB_CMDLINE_LINUX_DEFAULT="quiet $MORE $(cat /x) * iommu=pt"`,
		},
		"no line at all":                  {grub("GRUB_TIMEOUT=5"), "GRUB_TIMEOUT=5"},
		"systemd-boot, blanks at the end": {machine{cmdline: zfsRoot + "  \n"}, zfsRoot + " iommu=pt  \n"},
		"systemd-boot, empty lines around": {
			machine{cmdline: "\n" + zfsRoot + "\n\n"}, "\n" + zfsRoot + " iommu=pt\n\n",
		},
		"systemd-boot, a pattern among the words": {
			machine{cmdline: "a=* b=[x] " + zfsRoot + "\n"}, "a=* b=[x] " + zfsRoot + " iommu=pt\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := newTree(t, test.machine)
			before, file := tr.snapshot(false), kernelFile

			expected := test.line
			if test.machine.loader == "grub" {
				file, expected = grubFile, "GRUB_DEFAULT=0\n"+test.line+"\nGRUB_TERMINAL=console\n"
				if name == "no line at all" {
					expected += "GRUB_CMDLINE_LINUX_DEFAULT=\"iommu=pt\"\n"
				}
			}

			tr.apply(hostOf())
			assert.Equal(t, expected, tr.read(file))
			assert.Empty(t, tr.facts(hostOf()).Changes)
			tr.restore(hostOf())
			tr.unchanged(before, false, "removed again")
		})
	}
}

func TestWordsOfOthersSurviveTheRemoval(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		machine      machine
		edited, left string
	}{
		"systemd-boot": {machine{}, zfsRoot + " mitigations=off iommu=pt nosmt\n", zfsRoot + " mitigations=off nosmt\n"},
		"GRUB": {
			grub(`GRUB_CMDLINE_LINUX_DEFAULT="quiet"`), "GRUB_DEFAULT=1\nGRUB_CMDLINE_LINUX_DEFAULT=\"iommu=pt quiet nosmt\"\n",
			"GRUB_DEFAULT=1\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet nosmt\"\n",
		},
		"the word alone": {
			grub(`GRUB_CMDLINE_LINUX_DEFAULT=""`), "GRUB_CMDLINE_LINUX_DEFAULT=\"iommu=pt\" # mine\n",
			"GRUB_CMDLINE_LINUX_DEFAULT=\"\" # mine\n",
		},
		"the word was taken": {
			grub(`GRUB_CMDLINE_LINUX_DEFAULT=""`), "GRUB_CMDLINE_LINUX_DEFAULT=\"nosmt\"\n",
			"GRUB_CMDLINE_LINUX_DEFAULT=\"nosmt\"\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			tr, file := newTree(t, test.machine), kernelFile
			if test.machine.loader == "grub" {
				file = grubFile
			}

			tr.apply(hostOf())
			tr.write(file, test.edited)
			tr.restore(hostOf())
			assert.Equal(t, test.left, tr.read(file))
		})
	}
}

func TestAUsersOwnWordIsNeverTakenOut(t *testing.T) {
	t.Parallel()
	tr := newTree(t, machine{vendor: "intel", kernel: "6.5.13-6-pve", cmdline: zfsRoot + " iommu=pt\n"})
	tr.apply(hostOf())
	assert.Equal(t, zfsRoot+" iommu=pt intel_iommu=on\n", tr.read(kernelFile))
	tr.write(kernelFile, zfsRoot+" iommu=pt intel_iommu=on nosmt\n")
	tr.restore(hostOf())
	assert.Equal(t, zfsRoot+" iommu=pt nosmt\n", tr.read(kernelFile))
}

func TestTheBootLoaderInChargeIsFound(t *testing.T) {
	t.Parallel()

	systemd := `initrd=\EFI\proxmox\6.17.2-1-pve\initrd.img-6.17.2-1-pve ` + zfsRoot + "\n"

	for name, test := range map[string]struct {
		loader string
		change func(*tree)
		want   string
	}{
		"the firmware's entry": {"systemd-boot", func(*tree) {}, "systemd-boot"},
		"the firmware's entry before what is configured": {"systemd-boot", func(tr *tree) {
			tr.say("efibootmgr -v", "BootCurrent: 0004\nBoot0001* Linux Boot Manager\tHD()/File(\\EFI\\SYSTEMD\\SYSTEMD-BOOTX64.EFI)\nBoot0004* proxmox\tHD()/\\EFI\\PROXMOX\\GRUBX64.EFI\n")
		}, "grub"},
		"the running command line where the firmware's entry says nothing": {"systemd-boot", func(tr *tree) {
			tr.say("efibootmgr -v", "BootCurrent: 0007\nBoot0007* UEFI OS\tHD()/File(\\EFI\\BOOT\\BOOTX64.EFI)\n")
			tr.say(
				"proxmox-boot-tool status",
				"8A3C-1234 is configured with: uefi (versions: 6.17.2-1-pve), grub (versions: 6.17.2-1-pve)\n",
			)
		}, "systemd-boot"},
		"GRUB by the running command line": {
			"grub", func(tr *tree) { tr.say("efibootmgr -v", "EFI variables are not supported on this system.\n") }, "grub",
		},
		"what proxmox-boot-tool is configured with, last": {"systemd-boot", func(tr *tree) {
			tr.say("efibootmgr -v", "")
			tr.write("proc/cmdline", zfsRoot+"\n")
		}, "systemd-boot"},
		"BIOS": {"grub-by-tool", func(tr *tree) { require.NoError(tr.t, os.RemoveAll(tr.path("sys/firmware/efi"))) }, "grub"},
		"none": {"systemd-boot", func(tr *tree) {
			tr.say("efibootmgr -v", "")
			tr.say("proxmox-boot-tool status", "")
			tr.write("proc/cmdline", zfsRoot+"\n")
		}, ""},
		"an entry without a star": {"systemd-boot", func(tr *tree) {
			tr.say(
				"efibootmgr -v",
				"BootCurrent: 0001\nBoot0001  Linux Boot Manager\tHD()/File(\\EFI\\SYSTEMD\\SYSTEMD-BOOTX64.EFI)\n",
			)
			tr.write("proc/cmdline", systemd)
		}, "systemd-boot"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := newTree(t, machine{loader: test.loader})
			test.change(tr)
			r := tr.succeeds(ActionFacts, hostOf())
			assert.Contains(t, r.stdout, `"bootLoader":"`+test.want+`"`)

			if test.want == "" {
				assert.Contains(t, prepOf(t, r).Problems[0], "the boot loader could not be found out")
			}
		})
	}
}

func TestAfterAChangeOfTheBootLoaderTheOtherFileIsGivenBack(t *testing.T) {
	t.Parallel()
	tr := newTree(t, machine{loader: "grub-by-tool"})
	tr.apply(hostOf())
	require.Contains(t, tr.read(grubFile), "iommu=pt")
	tr.say(
		"efibootmgr -v", "BootCurrent: 0001\nBoot0001* Linux Boot Manager\tHD()/File(\\EFI\\SYSTEMD\\SYSTEMD-BOOTX64.EFI)\n",
	)

	done := tr.apply(hostOf())
	assert.Equal(t, []string{"/etc/default/grub", "/etc/kernel/cmdline"}, done.Applied)
	assert.Equal(t, grubText, tr.read(grubFile))
	assert.Equal(t, zfsRoot+" iommu=pt\n", tr.read(kernelFile))
}

func TestWhatIsNoLongerWantedGoes(t *testing.T) {
	t.Parallel()

	m := machine{gpu: true, zfs: true}
	tr := newTree(t, m)
	before := tr.snapshot(false)
	tr.apply(m.host(func(h *spec.Host) { h.Prep.Repositories = "no-subscription" }))

	done := tr.apply(m.host(func(h *spec.Host) { h.Prep.IOMMU = false; h.Prep.ZFSArcMaxGiB = new(0.0) }))
	assert.Equal(t, 2, done.Revision)

	for _, file := range []string{
		kernelFile, vfioFile, zfsFile, "etc/modules-load.d/vfio.conf", "etc/modprobe.d/blacklist-gpu.conf", arcMax,
		"etc/apt/sources.list.d/pve-enterprise.sources",
	} {
		assert.Equal(t, before["/"+file], tr.snapshot(false)["/"+file], file)
	}

	assert.Empty(t, tr.facts(m.host(func(h *spec.Host) { h.Prep.IOMMU = false; h.Prep.ZFSArcMaxGiB = new(0.0) })).Changes)
}
