package shell_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// TestRefusedBuildCommands covers command lines that a real host refuses too. The engine's template builds run the
// accepted ones.
func TestRefusedBuildCommands(t *testing.T) {
	t.Parallel()

	h := fast(t)
	_, stderr, status := h.run(t, `set -euo pipefail
qm create 900 --name x --serial0 socket; echo no-key >/root/keys; echo x >/run/f
genisoimage -quiet -output "$(pvesm path local:iso/seed.iso)" -volid cidata $HOST_ROOT/run/f
qm create 902 --scsi1 local:iso/seed.iso,media=cdrom; rm "$(pvesm path local:iso/seed.iso)"
`, "")
	require.Zero(t, status, stderr)

	_, err := h.dc.AddFault(datacentre.Fault{Full: "local"})
	require.NoError(t, err)

	for command, want := range map[string]struct {
		stderr string
		status int
	}{
		"genisoimage -output /run/x.iso /run/none": {"Invalid node - '/run/none'", 1},
		`genisoimage -output "$(pvesm path local:iso/x.iso)" /run/f`: {
			"No space left on device", 1,
		},
		"qm start 902":       {"volume 'local:iso/seed.iso' does not exist", 255},
		"qm wait 901":        {"does not exist", 2},
		"qm sendkey 900 ret": {"unknown command 'qm sendkey'", 255},
		"qm set 900 --sshkeys 'ssh-ed25519 AAAA not-a-file'": {"can't open 'ssh-ed25519 AAAA not-a-file'", 255},
		"qm set 900 --sshkeys /root/keys":                    {"SSH public key validation error", 255},
		"socat -u UNIX-CONNECT:/var/run/qemu-server/900.serial0 -": {
			"no such socket", 1, // the VM is stopped
		},
		"timeout 2 sleep 60":          {"", 124},
		"timeout 60 bash -c 'exit 3'": {"", 3},
	} {
		_, stderr, status := h.run(t, command, "")
		assert.Equal(t, want.status, status, command)
		assert.Contains(t, stderr, want.stderr, command)
	}

	stdout, stderr, status := h.run(t, `set -euo pipefail
qm start 900
qm wait 900 --timeout 900 | { read -r line; qm stop 900; echo "$line"; cat; }
`, "")
	assert.Zero(t, status, stderr)
	assert.Contains(t, stdout, "waiting until VM 900 stops")
}
