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
		env                            []string
		status                         int
	}{
		"prints and exits": {
			command: "echo out; echo err >&2; exit 7", stdout: "out\n", stderr: "err\n", status: 7,
		},
		"reads standard input": {command: "cat; read -r x || true", stdin: "hello", stdout: "hello"},
		"runs a script given on standard input": {
			command: `eval "$(cat)"`, stdin: "set -eu\nf() { echo \"in $1\"; }\nf here\n", stdout: "in here\n",
		},
		"runs bash -s with arguments": {
			command: "bash -s", stdin: "echo 1\nqm status 100\n", stdout: "1\nstatus: stopped\n",
		},
		"runs exit traps of a stream": {
			command: "bash -s", stdin: "trap 'echo bye $?' EXIT\necho hi\nfalse\n", stdout: "hi\nbye 1\n", status: 1,
		},
		"runs exit traps of a failure": {
			command: "bash -es", stdin: "trap 'echo bye $?' EXIT\nfalse\necho never\n", stdout: "bye 1\n", status: 1,
		},
		"runs bash -c": {
			command: `bash -euc 'echo "$0 $1"; qm status 100' name arg`, stdout: "name arg\nstatus: stopped\n",
		},
		"passes a failing pipe on": {command: "set -o pipefail; false | true", status: 1},
		"knows the client's variables": {
			command: `echo "$LC_GREETING"`, env: []string{"LC_GREETING=hi there"}, stdout: "hi there\n",
		},
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
		"throws away to /dev/null": {command: "echo x > /dev/null"},
		"does not know every command": {
			command: "no-such-command", status: 127, stderr: "\"no-such-command\": executable file not found in $PATH\n",
		},
		"says where a script is wrong": {
			command: "if", status: 2, stderr: "bash: bash:1:1: `if` must be followed by a statement list\n",
		},
		"knows its name":            {command: "hostname", stdout: "pve1\n"},
		"knows its cores":           {command: "nproc", stdout: "12\n"},
		"finds Proxmox' commands":   {command: "command -v qm pvesm | wc -l | tr -d ' '", stdout: "2\n"},
		"runs them with their path": {command: "/usr/sbin/qm status 100", stdout: "status: stopped\n"},
		"runs them with sudo":       {command: "sudo -n qm status 100", stdout: "status: stopped\n"},
		"an unknown VM": {
			command: "qm status 999", status: 2, stderr: "Configuration file 'nodes/pve1/qemu-server/999.conf' does not exist\n",
		},
		"a VMID that is taken": {
			command: "qm create 100", status: 255, stderr: "unable to create VM 100 - VM 100 already exists on node 'pve1'\n",
		},
		"a VMID that is none": {command: "qm status x", status: 255, stderr: "400 Parameter verification failed.\nvmid: invalid format - value does not look like a valid VM ID\n\nqm status <vmid> [OPTIONS]\n"},
		"an option no one knows": {
			command: "qm create 101 --colour red",
			status:  255,
			stderr:  "Unknown option: colour\n400 unable to parse option\nqm create <vmid> [OPTIONS]\n",
		},
		"an option without its value": {
			command: "qm create 101 --name",
			status:  255,
			stderr:  "Option name requires an argument\n400 unable to parse option\nqm create <vmid> [OPTIONS]\n",
		},
		"too few arguments": {
			command: "qm resize 100 scsi0",
			status:  255,
			stderr:  "400 not enough arguments\nqm disk resize <vmid> <disk> <size> [OPTIONS]\n",
		},
		"too many arguments": {
			command: "qm template 100 101", status: 255, stderr: "400 too many arguments\nqm template <vmid> [OPTIONS]\n",
		},
		"a value that Proxmox refuses": {
			command: "qm set 100 --cores x",
			status:  255,
			stdout:  "update VM 100: -cores x\n",
			stderr:  "400 Parameter verification failed.\ncores: type check ('integer') failed - got 'x'\n",
		},
		"a task that fails": {
			command: "qm resize 100 scsi0 1G", status: 255, stderr: "shrinking disks is not supported\n",
		},
		"a storage no one knows": {
			command: "pvesm path nfs:iso/x.iso", status: 255, stderr: "storage 'nfs' does not exist\n",
		},
		"what no real pvesm knows": {
			command: "pvesm paint",
			status:  255,
			stderr:  "ERROR: unknown command 'pvesm paint'\nUSAGE: pvesm <COMMAND> [ARGS] [OPTIONS]\n",
		},
		"what no real pvesh does": {
			command: "pvesh create /nodes", status: 255, stderr: "No 'create' handler defined for '/nodes'\n",
		},
		"an API path no one knows": {
			command: "pvesh get /moon", status: 255, stderr: "No 'get' handler defined for '/moon'\n",
		},
		"the next free VMID": {command: "pvesh get /cluster/nextid", stdout: "\"101\"\n"},
		"the release":        {command: "pveversion | cut -d/ -f1,2", stdout: "pve-manager/9.2.6\n"},
		"set without anything": {
			command: "qm set 100", status: 255, stderr: "no options specified\nqm set <vmid> [OPTIONS]\n",
		},
		"what a failing command prints in a test": {
			command: "if ! text=$(qm config 999 2>&1); then echo \"got: $text\"; fi",
			stdout:  "got: Configuration file 'nodes/pve1/qemu-server/999.conf' does not exist\n",
		},
	}

	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			stdout, stderr, status := h.run(t, test.command, test.stdin, test.env...)
			assert.Equal(t, test.stdout, stdout)
			assert.Equal(t, test.stderr, stderr)
			assert.Equal(t, test.status, status)
		})
	}
}
