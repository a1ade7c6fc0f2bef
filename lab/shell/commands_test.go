package shell_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCommands(t *testing.T) {
	t.Parallel()

	h := fast(t)
	_, _, status := h.run(t, "qm create 100 --name one --memory 2048 --net0 virtio,bridge=vmbr0 --scsi0 local-lvm:8", "")
	require.Zero(t, status)

	tests := map[string]struct {
		command, stdin, stdout, stderr string
		status                         int
	}{
		"prints and exits": {
			command: "echo out; echo err >&2; exit 7", stdout: "out\n", stderr: "err\n", status: 7,
		},
		"reads standard input": {command: "cat; read -r x || true", stdin: "hello", stdout: "hello"},
		"runs a script given on standard input": {
			command: `eval "$(cat)"`, stdin: "set -eu\nf() { echo \"in $1\"; }\nf here\n", stdout: "in here\n",
		},
		"passes a failing pipe on": {command: "set -o pipefail; false | true", status: 1},
		"has its home inside the root": {
			command: `[ "$HOME" = "$HOST_ROOT/root" ] && pwd | sed "s#$HOST_ROOT##"`, stdout: "/root\n",
		},
		"writes absolute paths inside the root": {
			command: `echo x > /etc/motd; cat "$HOST_ROOT/etc/motd"; [ -f /etc/motd ]`, stdout: "x\n",
		},
		"changes to folders inside the root": {command: `cd /etc && cat hostname`, stdout: "pve1\n"},
		"makes temporary files inside": {
			command: `f=$(mktemp); case $f in "$HOST_ROOT"/tmp/*) echo yes;; esac`, stdout: "yes\n",
		},
		"globs inside": {
			command: `for f in /etc/hostn*; do echo "$f"; done`, stdout: "/etc/hostname\n",
		},
		"discards to /dev/null": {command: "echo x > /dev/null"},
		"does not know every command": {
			command: "no-such-command", status: 127, stderr: "\"no-such-command\": executable file not found in $PATH\n",
		},
		"reports a syntax error": {
			command: "if", status: 2, stderr: "bash: bash:1:1: `if` must be followed by a statement list\n",
		},
		"runs exit traps": {command: "trap 'echo bye $?' EXIT; set -e; false; echo never", stdout: "bye 1\n", status: 1},
		"runs bash -c": {
			command: `bash -c 'echo "$0 $1"; qm status 100' name arg`, stdout: "name arg\nstatus: stopped\n",
		},
		"arguments that scripts do not use": {
			command: "uname -a", status: 255, stderr: "ERROR: the lab's uname does not support these arguments\nUSAGE: uname -r\n",
		},
		"runs commands by path": {command: "/usr/sbin/qm status 100", stdout: "status: stopped\n"},
		"an unknown VM": {
			command: "qm status 999", status: 2, stderr: "Configuration file 'nodes/pve1/qemu-server/999.conf' does not exist\n",
		},
		"an invalid VMID": {command: "qm status x", status: 255, stderr: "400 Parameter verification failed.\nvmid: type check ('integer') failed - got 'x'\nqm status <vmid>\n"},
		"a boolean option without its value": {
			command: "qm destroy 999 --purge", status: 2,
			stderr: "Configuration file 'nodes/pve1/qemu-server/999.conf' does not exist\n",
		},
		"any other option without its value": {
			command: "qm set 100 --cores", status: 255,
			stderr: "Option cores requires an argument\n400 unable to parse option\nqm set <vmid> [OPTIONS]\n",
		},
		"an unknown option": {
			command: "qm create 101 --colour red",
			status:  255,
			stderr:  "Unknown option: colour\n400 unable to parse option\nqm create <vmid> [OPTIONS]\n",
		},
		"too few arguments": {
			command: "qm resize 100 scsi0",
			status:  255,
			stderr:  "400 not enough arguments\nqm disk resize <vmid> <disk> <size> [OPTIONS]\n",
		},
		"a value that Proxmox refuses": {
			command: "qm set 100 --cores x",
			status:  255,
			stdout:  "update VM 100: -cores x\n",
			stderr:  "400 Parameter verification failed.\ncores: type check ('integer') failed - got 'x'\nqm set <vmid> [OPTIONS]\n",
		},
		"an unknown storage": {
			command: "pvesm path nfs:iso/x.iso", status: 255, stderr: "storage 'nfs' does not exist\n",
		},
		"an unknown API path": {
			command: "pvesh get /moon", status: 255, stderr: "No 'get' handler defined for '/moon'\n",
		},
	}

	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			stdout, stderr, status := h.run(t, test.command, test.stdin)
			assert.Equal(t, test.stdout, stdout)
			assert.Equal(t, test.stderr, stderr)
			assert.Equal(t, test.status, status)
		})
	}
}
