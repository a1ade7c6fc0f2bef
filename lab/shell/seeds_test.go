package shell_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// TestSeedsAreRealImages has a host write a seed, which its storage then has, until a program removes the file.
func TestSeedsAreRealImages(t *testing.T) {
	t.Parallel()

	const volume = "local:iso/seed.iso"

	h := fast(t)
	_, stderr, status := h.run(t, `set -euo pipefail
umask 077
mkdir -p $HOST_ROOT/run/x
echo '#cloud-config' >/run/x/user-data
echo 'instance-id: x' >/run/x/meta-data
genisoimage -quiet -output "$(pvesm path `+volume+`)" -volid cidata -joliet -rock $HOST_ROOT/run/x/user-data $HOST_ROOT/run/x/meta-data
qm create 900 --serial0 socket --scsi1 `+volume+`,media=cdrom
`, "")
	require.Zero(t, status, stderr)

	found, known := h.dc.Volume("pve1", volume)
	require.True(t, known)
	assert.Positive(t, found.SizeBytes)

	on, err := os.Open(filepath.Join(h.root, "var/lib/vz/template/iso/seed.iso"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, on.Close()) })

	image, err := iso9660.Read(file.New(on, true), found.SizeBytes, 0, 2048)
	require.NoError(t, err)
	assert.Contains(t, image.Label(), "cidata")

	entries, err := image.ReadDir("/")
	require.NoError(t, err)
	assert.Len(t, entries, 2)

	_, stderr, status = h.run(t, `rm -f "$(pvesm path `+volume+`)"; qm start 900`, "")
	assert.Equal(t, 255, status)
	assert.Contains(t, stderr, "volume '"+volume+"' does not exist")
}

// TestWhatBuildsMayNotAskFor are command lines that a real host refuses, too.
func TestWhatBuildsMayNotAskFor(t *testing.T) {
	t.Parallel()

	h := fast(t)
	_, stderr, status := h.run(t, "qm create 900 --name x --serial0 socket; echo no-key >/root/keys; echo x >/run/f", "")
	require.Zero(t, status, stderr)

	_, err := h.dc.AddFault(datacentre.Fault{Full: "local"})
	require.NoError(t, err)

	for command, want := range map[string]struct {
		says   string
		status int
	}{
		"genisoimage -output /run/x.iso /run/none": {"Invalid node - '/run/none'", 1},
		`genisoimage -output "$(pvesm path local:iso/x.iso)" /run/f`: {
			"No space left on device", 1,
		},
		"qm wait 901":        {"does not exist", 2},
		"qm sendkey 900 ret": {"unknown command 'qm sendkey'", 255},
		"qm set 900 --sshkeys 'ssh-ed25519 AAAA not-a-file'": {"can't open 'ssh-ed25519 AAAA not-a-file'", 255},
		"qm set 900 --sshkeys /root/keys":                    {"SSH public key validation error", 255},
		"socat -u UNIX-CONNECT:/var/run/qemu-server/900.serial0 -": {
			"no such socket", 1, // it is off
		},
		"timeout 2 sleep 60":          {"", 124},
		"timeout 60 bash -c 'exit 3'": {"", 3},
	} {
		_, stderr, status := h.run(t, command, "")
		assert.Equal(t, want.status, status, command)
		assert.Contains(t, stderr, want.says, command)
	}

	stdout, stderr, status := h.run(t, "qm start 900 && (qm stop 900 & qm wait 900 --timeout 900)", "")
	assert.Zero(t, status, stderr)
	assert.Contains(t, stdout, "waiting until VM 900 stops")
}
