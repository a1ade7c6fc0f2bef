package components

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// debianTemplate returns a template of Debian on the host of [scriptTemplate].
func debianTemplate() GoldenTemplateArgs {
	t := scriptTemplate()
	t.Name, t.Talos = "debian-13-20260712-2537-debian", nil
	t.System = (&System{
		OS: "debian", Release: "13", Build: "20260712-2537", Checksum: "sha512:00", Packages: []string{"htop"},
		User: "ops", SSHKeys: []string{"ssh-ed25519 AAAA ops", "ssh-ed25519 BBBB ops"}, SecureBoot: true, VLAN: 20,
	}).WithDefaults()

	return t
}

func nixosTemplate() GoldenTemplateArgs {
	t := debianTemplate()
	t.Name = "nixos-25.11-1-nixos"
	t.System = (&System{
		OS: "nixos", Release: "25.11", Build: "1", URL: "https://example.org/x.vma.zst", Checksum: sumOf("the backup"),
	}).WithDefaults()

	return t
}

func windowsTemplate() GoldenTemplateArgs {
	t := debianTemplate()
	t.Name, t.DiskSize = "windows-server-2025-26100-win", 64
	t.System = (&System{
		OS: "windows", Release: "server-2025", Build: "26100", Checksum: sumOf("the medium"), User: "ops", SecureBoot: true,
		Windows: &WindowsMedia{
			VirtioISO: "local:iso/virtio-win.iso", VirtioChecksum: sumOf("the drivers"),
			CloudbaseURL: "https://example.org/x.msi", CloudbaseChecksum: sumOf("the installer"), Edition: "Windows Server 2025",
		},
	}).WithDefaults()

	return t
}

func sumOf(text string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text))) }

// newSystemHost returns a host with the media that the recipes need.
func newSystemHost(t *testing.T) *scriptHost {
	t.Helper()

	h := newScriptHost(t)
	require.NoError(t, os.MkdirAll(filepath.Join(h.folder, "iso"), 0o750))
	require.NoError(t, os.MkdirAll(filepath.Join(h.folder, "run"), 0o750))
	h.write("iso/image.img", "the medium")
	h.write("iso/virtio-win.iso", "the drivers")

	return h
}

// assertNothingLeft expects neither a VM nor temporary files of a build.
func (h *scriptHost) assertNothingLeft() {
	h.t.Helper()
	assert.NoFileExists(h.t, filepath.Join(h.folder, "901.conf"))
	assert.NoFileExists(h.t, filepath.Join(h.folder, "901.running"))
	h.assertNoTemporaryFiles()
}

func (h *scriptHost) assertNoTemporaryFiles() {
	h.t.Helper()

	for _, pattern := range []string{"run/*", "iso/*seed*"} {
		left, err := filepath.Glob(filepath.Join(h.folder, pattern))
		require.NoError(h.t, err)
		assert.Empty(h.t, left)
	}
}

func TestSystemTemplatesAreBuilt(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		template GoldenTemplateArgs
		web      string
		config   []string
		absent   []string
		seed     map[string]string
	}{
		"Debian": {
			template: debianTemplate(),
			config: []string{
				"name: debian-13-20260712-2537-debian", "machine: q35", "bios: ovmf", "vga: serial0", "agent: 1",
				"net0: virtio,bridge=vmbr0,tag=20", "efidisk0: local-lvm:1,efitype=4m,pre-enrolled-keys=1,format=raw",
				"scsi1: local-lvm:cloudinit", "ciuser: ops", "sshkeys: ssh-ed25519 AAAA ops|ssh-ed25519 BBBB ops|", "ciupgrade: 0",
				"size: 20G", "template: 1", "boot: order=scsi0",
			},
			seed: map[string]string{
				"seen-user-data": `"qemu-guest-agent",`, "seen-meta-data": "instance-id", "iso.arguments": "-volid cidata -joliet",
			},
		},
		"NixOS": {
			template: nixosTemplate(), web: "the backup",
			config: []string{
				"bios: seabios", "ide2: local-lvm:cloudinit", "boot: order=virtio0", "template: 1", "agent: 1",
			},
			absent: []string{"machine:", "efidisk0:", "ciuser:"},
		},
		"Windows": {
			template: windowsTemplate(), web: "the installer",
			config: []string{
				"ostype: win11", "tpmstate0: local-lvm:1,version=v2.0", "ide2: local-lvm:cloudinit", "citype: configdrive2",
				"boot: order=scsi0", "ciuser: ops", "template: 1",
			},
			absent: []string{"sata0:", "sata1:", "sata2:"},
			seed: map[string]string{
				"seen-talos-proxmox-seed-901/autounattend.xml": "<Key>/IMAGE/NAME</Key><Value>Windows Server 2025</Value>",
				"seen-talos-proxmox-seed-901/first-logon.ps1":  "sysprep.exe", "iso.arguments": "-joliet -joliet-long",
				"seen-talos-proxmox-seed-901/CloudbaseInit.msi": "the installer",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			h := newSystemHost(t)
			h.write("web", test.web)

			h.mustRun(actionBuild, test.template)

			config := h.read("901.conf")
			for _, line := range test.config {
				assert.Contains(t, config, line+"\n")
			}

			for _, key := range test.absent {
				assert.NotContains(t, config, key)
			}

			for file, text := range test.seed {
				assert.Contains(t, h.read(file), text)
			}

			assert.NotContains(t, h.read("seen-talos-proxmox-seed-901/autounattend.xml"), "@PASSWORD@")
			assert.Contains(t, config, "provenance="+provenanceOf(newRecipe(test.template, owner).parameters)+" state=ready")
			h.assertNoTemporaryFiles()

			h.write("log", "")
			assert.Contains(t, h.mustRun(actionBuild, test.template), "is there already")
			assert.Empty(t, h.changes())

			h.mustRun(actionRemove, test.template)
			h.assertNothingLeft()
		})
	}
}

func TestFailedSystemBuildsLeaveNothingBehind(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		template    func() GoldenTemplateArgs
		file, text  string // of the host
		without     string // a file that the host has not
		says, wayTo string
	}{
		"the installation fails":  {file: "console", text: "template: failed: cloud-init ended with errors", says: "its installation failed: cloud-init ended with errors", wayTo: "the end of its console"},
		"it never ends":           {file: "never", says: "did not end within 15 minutes", wayTo: "state more buildMinutes"},
		"it stops without a word": {file: "console", text: "panic", says: "stopped without a word", wayTo: "panic"},
		"the image is gone":       {without: "iso/image.img", says: "local:iso/image.img is not on this host", wayTo: "correct the stack file"},
		"there is no room for the seed": {
			file: "fail", text: "genisoimage", says: "No space left on device", wayTo: "is local full?",
		},
		"there is no room for the disk": {file: "fail", text: "resize", says: "unable to give the template a disk of 20 GiB"},
		"the VM cannot be made":         {file: "fail", text: "create", says: "unable to create VM 901", wayTo: "firstVmid"},
		"it cannot be started":          {file: "fail", text: "start", says: "unable to start VM 901"},
		"the import fails":              {file: "fail", text: "set --scsi0", says: "the call fails as asked"},
		"the EFI disk fails":            {file: "fail", text: "set --efidisk0", says: "the call fails as asked"},
		"the seed cannot be attached":   {file: "fail", text: "set --scsi1 local:iso", says: "the call fails as asked"},
		"the seed cannot be detached":   {file: "fail", text: "set --delete", says: "the call fails as asked"},
		"it does not become a template": {file: "fail", text: "template", says: "the call fails as asked"},
		"the last word fails":           {file: "fail", text: "set --description", says: "the call fails as asked"},
		"a backup is gone":              {template: nixosTemplate, says: "unable to download https://example.org/x.vma.zst: curl: (22)", wayTo: "choose a newer one, or a url that has it"},
		"a backup is another file": {
			template: nixosTemplate, file: "web", text: "something else",
			says: "the checksum of https://example.org/x.vma.zst is " + sumOf("something else"), wayTo: "correct the checksum or the file",
		},
		"a medium is another file": {
			template: windowsTemplate, file: "iso/image.img", text: "x", says: "the checksum of local:iso/image.img is " + sumOf("x"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			template := debianTemplate
			if test.template != nil {
				template = test.template
			}

			h := newSystemHost(t)
			if test.file != "" {
				h.write(test.file, test.text)
			}

			if test.without != "" {
				require.NoError(t, os.Remove(filepath.Join(h.folder, test.without)))
			}

			output, err := h.run(actionBuild, template())

			require.Error(t, err, output)
			assert.Contains(t, output, test.says)
			assert.Contains(t, output, test.wayTo)
			h.assertNothingLeft()
		})
	}
}

func TestKilledSystemBuildsAreResumed(t *testing.T) {
	t.Parallel()

	for _, at := range []string{"set --efidisk0", "set --scsi0", "start", "socat", "set --delete", "template"} {
		t.Run("killed at "+at, func(t *testing.T) {
			t.Parallel()

			h := newSystemHost(t)
			h.runKilled(debianTemplate(), at, syscall.SIGKILL)
			assert.Contains(t, h.mustRun(actionBuild, debianTemplate()), "half-made template of an earlier run")
			assert.Contains(t, h.read("901.conf"), "state=ready")
			h.assertNoTemporaryFiles()
		})
	}

	t.Run("terminated while the guest installs", func(t *testing.T) {
		t.Parallel()

		h := newSystemHost(t)
		h.runKilled(debianTemplate(), "socat", syscall.SIGTERM)
		h.assertNothingLeft()
	})
}

func TestLinkedClonesOfATemplateAreNamed(t *testing.T) {
	t.Parallel()

	h := newSystemHost(t)
	h.mustRun(actionBuild, debianTemplate())

	before := h.read("901.conf")
	h.write("volumes", strings.Join([]string{
		"Volid Format Type Size VMID", "local-zfs:base-901-disk-0/vm-301-disk-0 raw images 1 301",
		"local:901/base-901-disk-1.qcow2/302/vm-302-disk-0.qcow2 qcow2 images 1 302", "local-zfs:base-901-disk-1 raw images 1 901",
		"local-zfs:base-9010-disk-0/vm-303-disk-0 raw images 1 303", "",
	}, "\n"))

	changed := debianTemplate()
	changed.System.Packages = []string{"vim"}

	for action, template := range map[string]GoldenTemplateArgs{actionBuild: changed, actionRemove: debianTemplate()} {
		output, err := h.run(action, template)
		require.Error(t, err, output)
		assert.Contains(t, output, "linked clones of it are the VMs 301 302; remove them")
		assert.Equal(t, before, h.read("901.conf"))
	}

	h.write("volumes", "")
	assert.Contains(t, h.mustRun(actionBuild, changed), "replaces the former one")
}

// TestTalosBuildScriptIsUnchanged pins the text that stacks have registered: a changed byte runs every build again.
func TestTalosBuildScriptIsUnchanged(t *testing.T) {
	t.Parallel()

	text := newRecipe(scriptTemplate(), owner).script("local:iso/x.img", "pve1")
	assert.Equal(t, "3ff81fd345ec426bcfff1422cd8935707848f78286b6284695d3ad331c912eb1", fmt.Sprintf("%x", sha256.Sum256([]byte(text))))
}
