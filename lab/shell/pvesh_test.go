package shell_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestPvesh calls the API with each subcommand and checks the result with qm.
func TestPvesh(t *testing.T) {
	t.Parallel()

	h := fast(t)

	for _, step := range []struct {
		command, stdout, stderr string
		status                  int
	}{
		{command: "pvesh create /nodes/pve1/qemu --vmid 100 --name one --cores 2 >/dev/null"},
		{command: "pvesh set /nodes/localhost/qemu/100/config --cipassword secret --description 'a: b'"},
		{command: "qm config 100 | grep -E '^(cores|cipassword|description|digest)'", stdout: "cipassword: **********\ncores: 2\ndescription: a%3A b\n"},
		{command: "pvesh get /cluster/nextid --output-format json", stdout: "\"101\"\n"},
		{
			command: "pvesh set /nodes/pve1/qemu/100/config --cores x", status: 255,
			stderr: "400 Parameter verification failed.\ncores: type check ('integer') failed - got 'x'\npvesh set <api_path> [OPTIONS]\n",
		},
		{
			command: "pvesh set /nodes/pve1/qemu/100/config --colour red", status: 255,
			stderr: "Unknown option: colour\n400 unable to parse option\npvesh set <api_path> [OPTIONS]\n",
		},
		{command: "pvesh delete /nodes/pve1/qemu/100 --purge >/dev/null"},
		{
			command: "pvesh get /nodes/pve1/qemu/100/config", status: 2,
			stderr: "Configuration file 'nodes/pve1/qemu-server/100.conf' does not exist\n",
		},
		{command: "pvesh", status: 255, stderr: "ERROR: unknown command 'pvesh'\nUSAGE: pvesh <COMMAND> [ARGS] [OPTIONS]\n       commands: create, delete, get, set\n"},
	} {
		stdout, stderr, status := h.run(t, step.command, "")
		assert.Equal(t, step.stdout, stdout, step.command)
		assert.Equal(t, step.stderr, stderr, step.command)
		assert.Equal(t, step.status, status, step.command)
	}
}
