package shell_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/scripts"
	"talos-proxmox/lab/datacentre"
)

func TestLocksAreReal(t *testing.T) {
	t.Parallel()

	h := fast(t)

	stdout, stderr, status := h.run(
		t, `flock -w 5 /run/lock/x.lock qm list; flock /run/lock/x.lock -c 'hostname; exit 3'`, "",
	)
	assert.Equal(t, "pve1\n", stdout, stderr)
	assert.Equal(t, 3, status)

	_, stderr, status = h.run(t, `flock /run/lock/y.lock flock -n -E 9 /run/lock/y.lock hostname`, "")
	assert.Equal(t, 9, status, stderr)

	_, stderr, status = h.run(t, `flock 9`, "")
	assert.Equal(t, 64, status)
	assert.Contains(t, stderr, "no numbered file descriptors")
}

func TestMachines(t *testing.T) {
	t.Parallel()

	h := fast(t)
	script := `
set -euo pipefail
qm create 900 --name tpl --memory 1024 --description 'a: 100 %' --net0 virtio=02:00:00:00:00:01,bridge=vmbr0
qm importdisk 900 "$(pvesm path ` + isoVolume + `)" local-lvm >/dev/null
qm set 900 --scsi0 local-lvm:vm-900-disk-0 --boot order=scsi0 >/dev/null
qm resize 900 scsi0 20G
qm template 900
qm clone 900 201 --name copy --full >/dev/null
qm clone 900 202 --name link >/dev/null
qm start 201
qm status 201
qm stop 201
qm disk move 201 scsi0 local-zfs --delete 1 >/dev/null
qm config 201 | grep -E '^(name|scsi0|boot):'
qm config 900 | grep -E '^(description|template):'
qm destroy 202 --purge
qm status 202 || echo gone
qm unlock 201
`
	stdout, stderr, status := h.run(t, "bash -s", script)
	require.Zero(t, status, stderr)
	assert.Equal(t, strings.Join([]string{
		"status: running", "boot: order=scsi0", "name: copy", "scsi0: local-zfs:vm-201-disk-0,size=20G",
		"description: a%3A 100 %25", "template: 1", "gone", "",
	}, "\n"), stdout)

	got, err := h.dc.ReadVolume("local-zfs:vm-201-disk-0")
	require.NoError(t, err)
	assert.Equal(t, talosImage, got)

	list, _, _ := h.run(t, "qm list", "")
	assert.Contains(t, list, "BOOTDISK(GB)")
	assert.Regexp(t, `201 copy +stopped +1024 +20\.00`, list)
}

func TestStorages(t *testing.T) {
	t.Parallel()

	for name, files := range map[string]bool{"with files": true, "of a model that keeps its contents": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			h := start(t, hostOptions{speed: 10000, files: files})

			stdout, stderr, status := h.run(
				t,
				`sha256sum "$(pvesm path `+isoVolume+`)" | cut -d' ' -f1; printf %s '`+string(talosImage.Encode())+
					`' | sha256sum | cut -d' ' -f1`,
				"",
			)
			require.Zero(t, status, stderr)

			sums := strings.Fields(stdout)
			require.Len(t, sums, 2)
			assert.Equal(t, sums[1], sums[0])

			stdout, _, _ = h.run(t, "pvesm status --content iso; pvesm list local --content iso", "")
			assert.Contains(t, stdout, "active")
			assert.NotContains(t, stdout, "local-lvm")
			assert.Contains(t, stdout, isoVolume+" iso     iso")

			stdout, stderr, status = h.run(t, "pvesm free "+isoVolume, "")
			require.Zero(t, status, stderr)
			assert.Equal(t, "Removed volume '"+isoVolume+"'\n", stdout)

			_, known := h.dc.Volume("pve1", isoVolume)
			assert.False(t, known)
		})
	}
}

func TestPvesh(t *testing.T) {
	t.Parallel()

	h := fast(t)
	_, _, status := h.run(t, "qm create 100 --name one --cores 2", "")
	require.Zero(t, status)

	tests := map[string]struct {
		path string
		want func(t *testing.T, answer any)
	}{
		"the machines of a host": {"/nodes/pve1/qemu", func(t *testing.T, answer any) {
			t.Helper()
			assert.Equal(t, "one", answer.([]any)[0].(map[string]any)["name"])
		}},
		"a configuration has numbers": {"/nodes/localhost/qemu/100/config", func(t *testing.T, answer any) {
			t.Helper()
			assert.InDelta(t, 2, answer.(map[string]any)["cores"], 0)
		}},
		"a status": {"/nodes/pve1/qemu/100/status/current", func(t *testing.T, answer any) {
			t.Helper()
			assert.Equal(t, "stopped", answer.(map[string]any)["status"])
		}},
		"the hosts": {"/nodes", func(t *testing.T, answer any) { t.Helper(); assert.Len(t, answer, 2) }},
		"the storages": {
			"/nodes/pve1/storage", func(t *testing.T, answer any) { t.Helper(); assert.Len(t, answer, 3) },
		},
		"what lies on a storage": {
			"/nodes/pve1/storage/local/content", func(t *testing.T, answer any) { t.Helper(); assert.Len(t, answer, 1) },
		},
		"everything": {"/cluster/resources", func(t *testing.T, answer any) { t.Helper(); assert.Len(t, answer, 9) }},
		"the version": {
			"/version",
			func(t *testing.T, answer any) { t.Helper(); assert.Equal(t, "9.2", answer.(map[string]any)["release"]) },
		},
	}

	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			stdout, stderr, status := h.run(t, "pvesh get "+test.path+" --output-format json", "")
			require.Zero(t, status, stderr)

			var answer any
			require.NoError(t, json.Unmarshal([]byte(stdout), &answer))
			test.want(t, answer)
		})
	}
}

// TestTheProjectsOwnBuildScript runs what the program sends to hosts.
func TestTheProjectsOwnBuildScript(t *testing.T) {
	t.Parallel()

	h, on := fast(t), "pve1"
	build := func(action, provenance string) (string, string, int) {
		return h.run(t, "action="+action+`; eval "$(cat)"`, scripts.Template([]scripts.Parameter{
			{Name: "host", Value: on},
			{Name: "owner", Value: "o"},
			{Name: "provenance", Value: provenance},
			{Name: "about", Value: "Talos v1.12.6"},
			{Name: "vmid", Value: "900"},
			{Name: "name", Value: "talos-v1.12.6-talos"},
			{Name: "image", Value: isoVolume},
			{Name: "datastore", Value: "local-lvm"},
			{Name: "bridge", Value: "vmbr0"},
			{Name: "cores", Value: "2"},
			{Name: "memory", Value: "2048"},
			{Name: "disk", Value: "10"},
			{Name: "stack_id", Value: "9f86"},
		}))
	}

	stdout, stderr, status := build("build", "p1")
	require.Zero(t, status, stderr)
	assert.Contains(t, stdout, "is made")

	vm, known := h.dc.VM(900)
	require.True(t, known)
	assert.True(t, vm.Template)
	assert.Contains(t, vm.Config["scsi0"], "size=10G")

	got, err := h.dc.ReadVolume(datacentre.ParseProperties(vm.Config["scsi0"], "file").Get("file"))
	require.NoError(t, err)
	assert.Equal(t, talosImage, got)

	stdout, stderr, status = build("build", "p1")
	require.Zero(t, status, stderr)
	assert.Contains(t, stdout, "is there already")

	on = "pve2"
	_, stderr, status = build("build", "p2")
	assert.NotZero(t, status)
	assert.Contains(t, stderr, "this is not pve2: the host's own name is pve1, and Proxmox VE knows it as pve1")

	on = "pve1"
	stdout, stderr, status = build("build", "p2")
	require.Zero(t, status, stderr)
	assert.Contains(t, stdout, "replaces the former one")

	stdout, stderr, status = build("remove", "p2")
	require.Zero(t, status, stderr)
	assert.Contains(t, stdout, "is removed")

	_, known = h.dc.VM(900)
	assert.False(t, known)
}
