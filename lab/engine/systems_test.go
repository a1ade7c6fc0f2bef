package engine_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/systems"
	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/machine/cloudguest"
	"talos-proxmox/lab/publisher"
)

// keyOfOps is a valid public key whose private key nobody has.
const keyOfOps = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJnSqgdRRhzrNQjPxuRQKg4PWCMXAl8VuiC5uB7DZvbM ops"

// systemStack is a stack of machines with another system than Talos, without a cluster.
type systemStack struct {
	OS, Release, Build string
	Checksum           string // empty = the published one
	Count              int
	Minutes            int // limit of a build
}

// debianStack has two machines of Debian, and enough time for a build on a busy computer.
func debianStack() systemStack {
	return systemStack{OS: "debian", Release: "13", Build: "20260712-2537", Count: 2, Minutes: 600}
}

// templateName is the name of the pool's template.
func (p systemStack) templateName() string {
	return p.OS + "-" + p.Release + "-" + p.Build + "-" + p.OS
}

// publishedChecksum is the checksum from the image's publisher.
func publishedChecksum(t testing.TB, name, release, build string) string {
	t.Helper()

	system, found := systems.Find(systems.Name(name))
	require.True(t, found)

	of, found := system.Release(release)
	require.True(t, found)

	return publisher.Checksum(system, of, build)
}

func (p systemStack) yaml(w *world) string {
	w.t.Helper()

	if p.Checksum == "" {
		p.Checksum = publishedChecksum(w.t, p.OS, p.Release, p.Build)
	}

	return fmt.Sprintf(`config:
  talos-proxmox:hosts:
    - {name: pve1, address: %[1]s.0.11}
  talos-proxmox:templates:
    %[2]s:
      {os: %[2]s, release: "%[3]s", build: "%[4]s", checksum: "%[5]s", packages: [htop], timezone: Europe/Berlin,
      locale: de_DE.UTF-8, user: ops, sshKeys: [%[6]s], hosts: [pve1], firstVmid: 940, datastore: local-lvm, diskGiB: 6,
      buildMinutes: %[7]d}
  talos-proxmox:machines:
    - name: web
      template: %[2]s
      count: %[8]d
      cores: 1
      memoryMiB: 1024
      diskGiB: 8
      firstAddress: %[1]s.1.60
      network: {cidr: %[1]s.1.0/24, gateway: %[1]s.1.1, dns: [%[1]s.1.1]}
`, w.network, p.OS, p.Release, p.Build, p.Checksum, keyOfOps, p.Minutes, p.Count)
}

// builtTemplate returns the template of a systemStack, and the system on its disk.
func (w *world) builtTemplate(p systemStack) (datacentre.VM, cloudguest.Guest) {
	w.t.Helper()

	i := slices.IndexFunc(w.lab.Data.VMs(), func(vm datacentre.VM) bool { return vm.Name == p.templateName() })
	require.GreaterOrEqual(w.t, i, 0, "there is no %s: %v", p.templateName(), w.machines())

	vm := w.lab.Data.VMs()[i]
	volume, _, _ := strings.Cut(vm.Config["scsi0"], ",")
	image, err := w.lab.Data.ReadVolume(volume)
	require.NoError(w.t, err)

	var guest cloudguest.Guest
	require.NoError(w.t, json.Unmarshal(image.State, &guest))

	return vm, guest
}

// seedImages returns the seed images that builds have left on the hosts' storages.
func (w *world) seedImages() []string {
	w.t.Helper()

	var names []string

	for _, host := range w.lab.Data.Hosts() {
		for _, volume := range w.lab.Data.Volumes(host.Name, "local", "iso") {
			if strings.Contains(volume.ID, "seed") {
				names = append(names, volume.ID)
			}
		}
	}

	return names
}

// TestBackupJobs: previews name plain machines that no backup job of Proxmox includes, although the stack file demands
// it.
func TestBackupJobs(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	stack := debianStack().yaml(w) + "      backup: true\n"
	warning := "machines[0].backup: no backup job of Proxmox that is switched on includes "

	w.up(stack)
	assert.NotContains(t, w.output(), warning, "new machines are in none yet")

	preview := func(job datacentre.Config) string {
		t.Helper()

		if job != nil {
			w.lab.Data.Put(datacentre.BackupJobs, "nightly", job)
		}

		before := len(w.output())
		_, err := w.preview(stack)
		require.NoError(t, err, w.output())

		return w.output()[before:]
	}

	vmids := []int{w.vm("web-1").ID, w.vm("web-2").ID}
	assert.Contains(t, preview(nil), fmt.Sprintf("%sweb-1 (VM %d), web-2 (VM %d): add them to one "+
		"(docs/recovery.md#plain-machines)", warning, vmids[0], vmids[1]))

	job := datacentre.Config{"schedule": "02:30", "storage": "pbs", "vmid": fmt.Sprint(vmids[0])}
	assert.Contains(t, preview(job), fmt.Sprintf("%sweb-2 (VM %d): add", warning, vmids[1]))
	assert.NotContains(t, preview(job.With("vmid", fmt.Sprintf("%d,%d", vmids[0], vmids[1]))), warning)
	assert.Contains(t, preview(job.With("vmid", fmt.Sprintf("%d,%d", vmids[0], vmids[1])).With("enabled", "0")), warning)
	assert.NotContains(t, preview(datacentre.Config{"schedule": "02:30", "all": "1"}), warning)
}

// TestSystems takes machines of another system through their life, including the build of their template: the host
// creates the seed, the guest follows it.
func TestSystems(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	p := debianStack()

	done := w.up(p.yaml(w))
	assert.Equal(t, []string{"VirtualMachine web-1-vm", "VirtualMachine web-2-vm"}, vms(done.withOp("create")))
	assert.Empty(t, w.seedImages())

	vm, guest := w.builtTemplate(p)
	assert.Equal(t, 941, vm.ID)
	assert.True(t, vm.Template)
	assert.Equal(t, "6G", vm.Config.Properties("scsi0")["size"])
	assert.Contains(t, vm.Config["scsi1"], "media=cdrom")
	assert.Equal(t, "order=scsi0", vm.Config["boot"], "its clones boot from its disk")
	assert.Equal(t, "ops", vm.Config["ciuser"])

	assert.Equal(t, []string{"qemu-guest-agent", "locales", "htop"}, guest.Packages)
	assert.Equal(t, "/usr/share/zoneinfo/Europe/Berlin", guest.Links["/etc/localtime"])
	assert.Equal(t, "LANG=de_DE.UTF-8\n", guest.Files["/etc/default/locale"])
	assert.Empty(t, guest.User)
	assert.Empty(t, guest.Files["/etc/machine-id"])
	assert.Contains(t, guest.Files, "/etc/machine-id")

	for file, content := range guest.Files {
		for _, own := range []string{"ssh_host", "/var/lib/cloud", "random-seed", "/var/log/journal/", "/run/", ".deb"} {
			assert.NotContains(t, file, own, "it belongs to one machine only")
		}

		assert.False(t, strings.HasPrefix(file, "/var/log/") && content != "", "%s has %q", file, content)
	}

	one, found := w.lab.Machines.Cloud(5000)
	require.True(t, found)

	two, found := w.lab.Machines.Cloud(5001)
	require.True(t, found)
	assert.Equal(t, []string{"web-1", "web-2"}, []string{one.Hostname, two.Hostname})
	assert.Equal(t, []string{keyOfOps}, two.Keys)
	assert.Equal(t, "ops", two.User)
	assert.False(t, two.Upgraded, "the template's ciupgrade")
	assert.NotEqual(t, one.Files["/etc/machine-id"], two.Files["/etc/machine-id"])
	assert.NotEqual(t, one.Files["/etc/ssh/ssh_host_rsa_key"], two.Files["/etc/ssh/ssh_host_rsa_key"])

	// Unchanged: nothing to do, to preview or to refresh.
	_, err := w.preview(p.yaml(w), optpreview.ExpectNoChanges())
	require.NoError(t, err, w.output())
	w.up(p.yaml(w), optup.ExpectNoChanges())
	assert.Empty(t, w.refresh(p.yaml(w)))

	// A new build: a new template; existing machines stay unchanged.
	p.Build = "20260811-2566"
	done = w.up(p.yaml(w))
	assert.Empty(t, vms(slices.Concat(done.withOp("create"), done.withOp("update"), done.withOp("replace"), done.withOp("delete"))))

	vm, _ = w.builtTemplate(p)
	assert.Equal(t, 941, vm.ID)
	assert.Equal(t, map[string]int{"web-1": 5000, "web-2": 5001}, w.machines())

	again, found := w.lab.Machines.Cloud(5000)
	require.True(t, found)
	assert.Equal(t, one.Files["/etc/machine-id"], again.Files["/etc/machine-id"])

	// Fewer, and none.
	p.Count = 1
	done = w.up(p.yaml(w))
	assert.Equal(t, []string{"VirtualMachine web-2-vm"}, vms(done.withOp("delete")))

	w.destroy(p.yaml(w))
	w.requireEmpty()
	assert.Empty(t, w.seedImages())
	assert.Empty(t, slices.Collect(maps.Keys(w.machines())))
}
