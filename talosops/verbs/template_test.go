package verbs

import (
	"cmp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/verbtest"
)

const templateMarker = "talos-proxmox-template owner=talos-proxmox/prod provenance=1f state="

// The changes of a build, and of a removal.
var (
	templateBuilds = []string{
		"POST /qemu", "POST /qemu/900/config", "PUT /qemu/900/config", "PUT /qemu/900/resize", "POST /qemu/900/template",
		"PUT /qemu/900/config",
	}
	templateRemoval = []string{"PUT /qemu/900/config", "DELETE /qemu/900"}
)

func templateOf(h *fakeHost) request.Template {
	return request.Template{
		Proxmox: h.settings("/nodes/pve1", h.handle), Host: "pve1", VMID: 900, Name: "talos-v1.14.4-talos", Owner: "talos-proxmox/prod", ID: "9f86",
		Provenance: "1f", About: "Talos v1.14.4", Image: "local:import/talos.qcow2", Datastore: "disks", Bridge: "vmbr0",
		Cores: 4, MemoryMiB: 4096, DiskGiB: 20,
	}
}

func TestTemplate(t *testing.T) {
	t.Parallel()

	vm := func(description string, isTemplate int) map[string]any {
		return map[string]any{"description": description + "\n", "template": isTemplate}
	}
	ready := func() map[string]any { return vm(templateMarker+"ready id=9f86 (Talos v1.14.4)", 1) }

	for name, test := range map[string]struct {
		host   *fakeHost
		remove bool
		calls  []string
		gone   bool // there is no VM afterwards
		said   string
		err    string
	}{
		"nothing is there": {calls: templateBuilds, said: "template talos-v1.14.4-talos (VM 900) is made\n"},
		"it is there":      {host: &fakeHost{vm: ready()}, said: "is there already\n"},
		"it is there without the stack's id": {
			host: &fakeHost{vm: vm(templateMarker+"ready (Talos v1.14.4)", 1)}, calls: []string{"PUT /qemu/900/config"},
		},
		"it is there with the id of a lost state": {
			host: &fakeHost{vm: vm(templateMarker+"ready id=00 (Talos v1.14.4)", 1)}, calls: []string{"PUT /qemu/900/config"},
		},
		"half of it is there": {
			host:  &fakeHost{vm: vm(templateMarker+"building id=9f86 (Talos)", 0)},
			calls: append([]string{"DELETE /qemu/900"}, templateBuilds...), said: "it is made anew\n",
		},
		"its removal was interrupted": {
			host:  &fakeHost{vm: vm("talos-proxmox-template owner=talos-proxmox/prod state=removing id=9f86", 1)},
			calls: append([]string{"DELETE /qemu/900"}, templateBuilds...), said: "it is made anew\n",
		},
		"another one is there": {
			host:  &fakeHost{vm: vm("talos-proxmox-template owner=talos-proxmox/prod provenance=0 state=ready id=9f86 (Talos)", 1)},
			calls: append(append([]string{}, templateRemoval...), templateBuilds...), said: "replaces the former one",
		},
		"another one with linked clones": {
			host: &fakeHost{
				vm: vm("talos-proxmox-template owner=talos-proxmox/prod provenance=0 state=ready id=9f86 (Talos)", 1),
				clones: []string{
					"disks:900/base-900-disk-0.raw/3001/vm-3001-disk-1.qcow2", "disks:base-900-disk-1/vm-3000-disk-0",
					"disks:base-900-disk-0", "disks:base-901-disk-0/vm-3009-disk-0", "disks:vm-900-disk-0",
				},
			},
			err: "stays: linked clones of it are the VMs 3000 3001; remove them",
		},
		"another stack's": {
			host: &fakeHost{vm: vm("talos-proxmox-template owner=talos-proxmox/test provenance=1f state=ready id=00 (Talos)", 1)},
			err:  "VM 900 on host pve1 exists and is not a template of talos-proxmox/prod (id=9f86): it is left alone",
		},
		"a namesake's of another backend": {
			host: &fakeHost{vm: vm("talos-proxmox-template owner=talos-proxmox/prod provenance=0 state=ready id=00 (Talos)", 1)},
			err:  "is left alone",
		},
		"a clone of it, made by hand": {
			host: &fakeHost{vm: vm(templateMarker+"ready id=9f86 (Talos)", 0)}, err: "is left alone",
		},
		"somebody's machine": {host: &fakeHost{vm: vm("mail", 0)}, err: "is left alone"},
		"a creation that a power cut interrupted": {
			host: &fakeHost{vm: map[string]any{"lock": "create"}},
			err:  "VM 900 on host pve1 is locked (create) and no task runs for it",
		},
		"a task of an interrupted run": {
			host:  &fakeHost{running: []string{"UPID:pve1:0:0:0:qmcreate:900:t@pve!t:", "UPID:pve1:0:0:0:qmclone:901:t@pve!t:", "UPID:pve1:0:0:0:vncproxy:900:t@pve!t:"}},
			calls: templateBuilds, said: "host pve1 still works for an interrupted run: qmcreate of 900\n",
		},
		"its disk does not fit": {
			host:  &fakeHost{refuse: "POST /qemu/900/config"},
			calls: []string{"POST /qemu", "POST /qemu/900/config", "DELETE /qemu/900"}, gone: true,
			err: `unable to import its disk: its task ended with "no space left"`,
		},
		"its VMID is taken on another host": {
			host: &fakeHost{refuse: "POST /qemu"}, calls: []string{"POST /qemu"}, gone: true,
			err: "is its number taken on another host?",
		},

		"removed":      {host: &fakeHost{vm: ready()}, remove: true, calls: templateRemoval, gone: true, said: "is removed\n"},
		"gone already": {remove: true, gone: true, said: "VM 900 is gone already\n"},
		"another one, to be removed": {
			host:   &fakeHost{vm: vm("talos-proxmox-template owner=talos-proxmox/prod provenance=0 state=ready id=9f86 (Talos)", 1)},
			remove: true, said: "is not template talos-v1.14.4-talos of this provenance: it is left alone\n",
		},
		"with the id of a lost state, to be removed": {
			host: &fakeHost{vm: vm(templateMarker+"ready id=00 (Talos v1.14.4)", 1)}, remove: true, said: "it is left alone\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			h := cmp.Or(test.host, &fakeHost{})
			h.t = t
			untouched := h.vm["description"]

			var args []string
			if test.remove {
				args = []string{"--remove"}
			}

			_, said, err := verbtest.Run(t, Commands(), "template", templateOf(h), verbtest.NoInterrupt, args...)
			assert.Equal(t, test.calls, h.calls)
			assert.Contains(t, said, test.said)

			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				assert.NotContains(t, err.Error(), "hunter2")
			} else {
				require.NoError(t, err)
			}

			switch {
			case test.gone:
				assert.Nil(t, h.vm)
			case test.remove || test.err != "":
				assert.Equal(t, untouched, h.vm["description"], "it is left alone")
			default:
				assert.Contains(t, h.vm["description"], templateMarker+"ready id=9f86 (Talos v1.14.4)")
			}
		})
	}
}

// TestTemplateHasTheHardwareOfTheScript compares the VM with that of the build script in the host's shell.
func TestTemplateHasTheHardwareOfTheScript(t *testing.T) {
	t.Parallel()

	h := &fakeHost{fakeAPI: fakeAPI{t: t}}
	_, _, err := verbtest.Run(t, Commands(), "template", templateOf(h), verbtest.NoInterrupt)
	require.NoError(t, err)

	assert.Equal(t, map[string]any{
		"vmid": 900.0, "name": "talos-v1.14.4-talos", "template": 1, "tags": "template", "ostype": "l26", "machine": "q35",
		"bios": "ovmf", "cores": 4.0, "sockets": 1.0, "cpu": "x86-64-v2-AES", "memory": 4096.0, "balloon": 0.0,
		"scsihw": "virtio-scsi-pci", "serial0": "socket", "vga": "std", "tablet": 0.0, "onboot": 0.0,
		"net0": "virtio,bridge=vmbr0", "efidisk0": "disks:1,efitype=4m,pre-enrolled-keys=0,format=raw",
		"scsi0": "disks:0,import-from=local:import/talos.qcow2,format=raw,discard=on,ssd=1,aio=io_uring",
		"boot":  "order=scsi0", "size": "20G", "description": templateMarker + "ready id=9f86 (Talos v1.14.4)",
	}, h.vm)
}

func TestImage(t *testing.T) {
	t.Parallel()

	const (
		download = "POST /storage/local/download-url"
		removal  = "DELETE /storage/local/content/local:import/talos.qcow2"
	)

	there := []string{"local:import/other.qcow2", "local:import/talos.qcow2"}

	for name, test := range map[string]struct {
		host     *fakeHost
		checksum string
		remove   bool
		calls    []string
		said     string
		err      string
	}{
		"a new file":                    {calls: []string{download}, said: "downloads https://factory.test/x.qcow2 to local:import/talos.qcow2\n"},
		"a file that is there":          {host: &fakeHost{files: there}, said: "is on host pve1 already\n"},
		"a file with a checksum":        {host: &fakeHost{files: there}, checksum: "00", calls: []string{download}, said: "compares"},
		"a download that still runs":    {host: &fakeHost{running: []string{"UPID:pve1:0:0:0:download:talos.qcow2:t@pve!t:"}}, calls: []string{download}, said: "still works"},
		"Proxmox VE 8.3":                {host: &fakeHost{release: "8.3"}, err: "Proxmox VE 8.3 does not import disk images through its API: upgrade it to 8.4 or newer"},
		"a datastore without the type":  {host: &fakeHost{refuse: download}, calls: []string{download}, err: "(`pvesm set local --content …,import`)"},
		"a file to be removed":          {host: &fakeHost{files: there}, remove: true, calls: []string{removal}, said: "is deleted"},
		"a file that is gone already":   {remove: true, said: "is gone from host pve1 already\n"},
		"a removal without Proxmox 8.4": {host: &fakeHost{files: there, release: "8.3"}, remove: true, calls: []string{removal}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			h := cmp.Or(test.host, &fakeHost{})
			h.t = t

			if h.release == "" {
				h.release = "9.2"
			}

			var args []string
			if test.remove {
				args = []string{"--remove"}
			}

			_, said, err := verbtest.Run(t, Commands(), "image", request.ImageFile{
				Proxmox: h.settings("/nodes/pve1", h.handle), Host: "pve1", Datastore: "local", File: "talos.qcow2",
				URL: "https://factory.test/x.qcow2", Checksum: test.checksum,
			}, verbtest.NoInterrupt, args...)
			assert.Equal(t, test.calls, h.calls)
			assert.Contains(t, said, test.said)

			if test.err == "" {
				require.NoError(t, err)

				return
			}

			require.ErrorContains(t, err, test.err)
			assert.NotContains(t, err.Error(), "hunter2")
		})
	}
}
