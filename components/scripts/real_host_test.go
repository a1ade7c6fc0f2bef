package scripts

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/hostfacts"
	"talos-proxmox/internal/spec"
)

// realHost is a Debian machine with stand-ins for Proxmox' programs, reached over SSH; test-host.sh creates it.
type realHost struct {
	t          *testing.T
	config     string // of ssh
	loader     string
	stageStart time.Time
}

// TestRealHost prepares and restores a host, and reboots it with its firmware after each change.
func TestRealHost(t *testing.T) {
	t.Parallel()

	h := &realHost{t: t, config: os.Getenv("REAL_HOST"), loader: os.Getenv("REAL_HOST_LOADER"), stageStart: time.Now()}
	if h.config == "" {
		t.Skip("a real Debian: components/scripts/test-host.sh runs this (REAL_HOST names ssh's configuration)")
	}

	h.awaitBoot("")
	h.logStage("the first boot, and a login")

	fresh := h.facts(ActionFacts)
	h.checkFresh(fresh)
	h.logStage("facts of a host that has just been installed")

	h.run(map[string]string{
		// Debian's removable path has neither boot loader's name; its installation makes the firmware's entry.
		"grub": "grub-install --target=x86_64-efi 2>&1 && update-grub 2>&1",
		"systemd-boot": "bootctl install 2>&1 && rm /boot/efi/loader/entries/first.conf && printf 'timeout 0\n' >/boot/efi/loader/loader.conf && " +
			"proxmox-boot-tool refresh 2>&1",
	}[h.loader], "")
	h.logStage("the boot loader's own installation")

	before, words := h.etc(), h.kernelArguments()
	h.prepare(words)
	h.logStage("apply, and again")

	h.reboot(fresh.System.BootID)
	h.logStage("the second boot")

	running := h.checkPrepared()
	h.logStage("facts of a host that runs as it was prepared")

	h.script(ActionRestore)
	assert.Equal(t, before, h.etc(), "every file below /etc is as it was")
	assert.Equal(t, words, h.kernelArguments())
	assert.Equal(t, "no\n", h.run("test -e /var/lib/talos-proxmox && echo yes || echo no", ""))
	h.logStage("restore")

	h.reboot(running.System.BootID)
	h.logStage("the third boot")

	restored := h.facts(ActionFacts)
	assert.NotContains(t, restored.System.CommandLine, "iommu=pt")
	assert.Contains(t, restored.System.CommandLine, words)
	assert.Equal(t, drivers(fresh), drivers(restored), "the card is the host's again")

	_, _, _ = h.try("systemctl poweroff", "") // the connection may break off first
	h.logStage("facts of a restored host")
}

// card is the emulated card: a display, sound and USB, as GPUs have them.
const card = "0000:01:00"

// cardPlan returns the host with the card as its GPU.
func cardPlan() spec.Host {
	return spec.Host{
		Name: "pve1", Prep: &spec.Prep{IOMMU: true, Repositories: "keep"},
		GPUs: []spec.Device{{Name: "card", Host: "pve1", PCI: card}},
	}
}

// drivers returns the drivers of the card's functions.
func drivers(facts *hostfacts.Facts) (list []string) {
	for _, d := range facts.Functions(card) {
		list = append(list, d.Driver)
	}

	return list
}

// checkFresh checks the facts before the preparation.
func (h *realHost) checkFresh(facts *hostfacts.Facts) {
	h.t.Helper()

	assert.Equal(h.t, "pve1", facts.System.Hostname)
	assert.Equal(h.t, "pve1", facts.System.Node)
	assert.Equal(h.t, "9.0.3", facts.System.PVE)
	assert.Equal(h.t, "intel", facts.System.CPUVendor)
	assert.True(h.t, facts.System.UEFI)
	assert.Equal(h.t, h.loader == "grub", facts.System.SecureBoot)
	assert.Equal(h.t, h.loader, facts.System.BootLoader, facts.System.BootLoaderEvidence)
	assert.Equal(h.t, []string{"DMAR"}, facts.IOMMU.Firmware)
	assert.Equal(h.t, []string{"", "snd_hda_intel", "xhci_hcd"}, drivers(facts))
	assert.NotEmpty(h.t, facts.Prep.Changes)
	assert.Contains(h.t, facts.Prep.Pending, "the kernel runs without iommu=pt")
	assert.Empty(h.t, facts.Prep.Problems)
}

// prepare applies twice, and checks what the next boot reads.
func (h *realHost) prepare(words string) {
	h.t.Helper()

	applied := h.facts(ActionApply)
	file := map[string]string{"grub": "/etc/default/grub", "systemd-boot": "/etc/kernel/cmdline"}[h.loader]
	assert.Equal(h.t, []string{
		file, "/etc/modules-load.d/vfio.conf", "/etc/modprobe.d/blacklist-gpu.conf", "/etc/modprobe.d/vfio.conf",
	}, applied.Prep.Applied)
	assert.Equal(h.t, file, applied.System.CommandLineFile)
	assert.True(h.t, applied.RebootHelps(), applied.Prep.Pending)

	prepared := h.kernelArguments()
	assert.Contains(h.t, strings.Fields(prepared), "iommu=pt")
	assert.Equal(h.t, words, strings.Replace(prepared, " iommu=pt", "", 1))

	image := h.run("lsinitramfs /boot/initrd.img-$(uname -r)", "")
	for _, file := range []string{"etc/modprobe.d/vfio.conf", "etc/modprobe.d/blacklist-gpu.conf", "/vfio-pci.ko"} {
		assert.Contains(h.t, image, file)
	}

	_, said := h.script(ActionApply)
	assert.Contains(h.t, said, "nothing to change")
}

// checkPrepared checks the facts after the reboot that completes the preparation.
func (h *realHost) checkPrepared() *hostfacts.Facts {
	h.t.Helper()

	facts := h.facts(ActionFacts)
	assert.Empty(h.t, facts.Prep.Changes)
	assert.Empty(h.t, facts.Prep.Pending)
	assert.Contains(h.t, strings.Fields(facts.System.CommandLine), "iommu=pt")
	assert.Equal(h.t, h.loader, facts.System.BootLoader)
	assert.Contains(h.t, facts.System.BootLoaderEvidence, "the firmware started entry")
	assert.Equal(h.t, []string{"vfio-pci", "vfio-pci", "vfio-pci"}, drivers(facts))

	modules := h.run("lsmod", "")
	for _, module := range []string{"vfio_pci ", "vfio_iommu_type1 ", "vfio "} {
		assert.Contains(h.t, modules, "\n"+module)
	}

	// With NVIDIA's vendor id, the card would be ready for machines.
	for i, d := range facts.Devices {
		if strings.HasPrefix(d.Class, "03") {
			facts.Devices[i].Vendor = "10de"
		}
	}

	plan := cardPlan()
	assert.Empty(h.t, hostfacts.NotReadyReasons(facts, plan, hostfacts.Needs{Nodes: []spec.Node{{GPUs: plan.GPUs}}}))

	return facts
}

// kernelArguments returns the kernel arguments of the boot loader's newest entry.
func (h *realHost) kernelArguments() string {
	h.t.Helper()

	return strings.TrimSpace(h.run(map[string]string{
		"grub":         `sed -n 's/^[[:space:]]*linux[[:space:]]*[^ ]* //p' /boot/grub/grub.cfg | head -n 1`,
		"systemd-boot": `sed -n 's/^options *//p' /boot/efi/loader/entries/*.conf`,
	}[h.loader], ""))
}

// etc returns all files below /etc except the one that systemd rewrites when it starts.
func (h *realHost) etc() string {
	h.t.Helper()

	return h.run(`cd /etc && find . -type f ! -name machine-id -printf '%p %m %u %g %t\n' -exec sha256sum {} + | sort`, "")
}

// script runs the program's script as the program does.
func (h *realHost) script(action string) (stdout, stderr string) {
	h.t.Helper()

	stdout, stderr, err := h.try(HostCommand(action), Host(HostParameters(cardPlan(), "talos-proxmox/test", false)))
	require.NoError(h.t, err, stdout+stderr)

	return stdout, stderr
}

func (h *realHost) facts(action string) *hostfacts.Facts {
	h.t.Helper()

	stdout, stderr := h.script(action)
	facts, err := hostfacts.Parse([]byte(stdout))
	require.NoError(h.t, err, stdout)
	h.t.Log(stderr)

	return facts
}

func (h *realHost) reboot(bootID string) {
	h.t.Helper()

	// The host may go down before the answer is complete.
	stdout, stderr, _ := h.try(HostCommand(ActionReboot), Host(HostParameters(cardPlan(), "talos-proxmox/test", true)))
	assert.Equal(h.t, "rebooting\n", stdout, stderr)
	h.awaitBoot(bootID)
	// Proxmox' cluster file system releases the lock when it is two minutes old; a folder of a disk does not.
	h.run("rmdir /etc/pve/priv/lock/talos-proxmox-reboot", "")
}

// awaitBoot waits for another boot.
func (h *realHost) awaitBoot(before string) {
	h.t.Helper()

	for limit := time.Now().Add(30 * time.Minute); time.Now().Before(limit); time.Sleep(5 * time.Second) {
		id, _, err := h.try("cat /proc/sys/kernel/random/boot_id", "")
		if err == nil && strings.TrimSpace(id) != before {
			return
		}
	}

	require.Fail(h.t, "the host did not come back")
}

func (h *realHost) run(command, stdin string) string {
	h.t.Helper()

	stdout, stderr, err := h.try(command, stdin)
	require.NoError(h.t, err, stdout+stderr)

	return stdout
}

func (h *realHost) try(command, stdin string) (stdout, stderr string, err error) {
	h.t.Helper()

	ctx, cancel := context.WithTimeout(h.t.Context(), 20*time.Minute)
	defer cancel()

	var out, errOut strings.Builder

	c := exec.CommandContext(ctx, "ssh", "-F", h.config, "pve1", command) //nolint:gosec // a test
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(stdin), &out, &errOut
	err = c.Run()

	return out.String(), errOut.String(), err
}

// logStage logs how long a stage took.
func (h *realHost) logStage(stage string) {
	h.t.Helper()
	h.t.Logf("%s, %s: %.0f s", h.loader, stage, time.Since(h.stageStart).Seconds())
	h.stageStart = time.Now()
}
