package container_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/machine/container"
)

func TestCommands(t *testing.T) {
	t.Parallel()

	var slept time.Duration

	gpu := &container.NVIDIA{
		Driver: "580.1", GPUs: []container.GPU{{Name: "NVIDIA A", UUID: "GPU-1", Bus: "00000000:01:00.0"}},
	}

	for name, test := range map[string]struct {
		command        []string
		stdin          string
		nvidia         *container.NVIDIA
		stdout, stderr string
		status         int
		err            string
	}{
		"a program":     {command: []string{"echo", "a  b", "$HOME"}, stdout: "a  b $HOME\n"},
		"with its path": {command: []string{"/bin/true"}},
		"a script": {
			command: []string{"sh", "-ec", "for i in 1 2; do echo $i $A; done; false; echo never"},
			stdout:  "1 b\n2 b\n",
			status:  1,
		},
		"parameters of a script": {command: []string{"sh", "-c", "echo $1 $#", "x", "one", "two"}, stdout: "one 2\n"},
		"a script of standard input": {
			command: []string{"sh"}, stdin: "echo in\nexit 3\necho never\n", stdout: "in\n", status: 3,
		},
		"statements of several lines": {
			command: []string{"sh"},
			stdin:   "for i in 1 2\ndo\necho $i\ndone\nif )\necho $((1+2))\nexit 7\n",
			stdout:  "1\n2\n3\n",
			stderr:  "sh: ",
			status:  7,
		},
		"a program reads the shell's input": {
			command: []string{"sh"}, stdin: "cat\none\ntwo\n", stdout: "one\ntwo\n",
		},
		"a shell in a shell": {
			command: []string{"bash", "-c", "export X=1; sh -c 'echo $X; exit 4'; echo $?"}, stdout: "1\n4\n",
		},
		"a broken script": {command: []string{"sh", "-c", "if"}, stderr: "sh:1:1:", status: 2},
		"no files of the host": {
			command: []string{
				"sh", "-c", "cat /etc/passwd; test -e /etc/passwd || echo none; echo x > /dev/null; echo x > /tmp/x",
			},
			stdout: "none\n",
			stderr: "can't open '/etc/passwd'",
			status: 1,
		},
		"no programs of the host": {
			command: []string{"sh", "-c", "ls /; echo $?"}, stdout: "127\n", stderr: "sh: ls: not found\n",
		},
		"an unknown program": {
			command: []string{"ls"}, err: `exec: "ls": executable file not found in $PATH`,
		},
		"NVIDIA's tools without NVIDIA's runtime": {
			command: []string{"nvidia-smi"}, err: `exec: "nvidia-smi": executable file not found`,
		},
		"a list of GPUs": {command: []string{"nvidia-smi", "-L"}, nvidia: gpu, stdout: "GPU 0: NVIDIA A (UUID: GPU-1)\n"},
		"an unsupported option": {
			command: []string{"nvidia-smi", "--query-gpu=index"}, nvidia: gpu, stderr: "supports only -L", status: 1,
		},
		"a table of GPUs": {command: []string{"nvidia-smi"}, nvidia: gpu, stdout: "NVIDIA-SMI 580.1"},
		"no GPU": {
			command: []string{"nvidia-smi", "-L"}, nvidia: &container.NVIDIA{}, stderr: "No devices were found\n", status: 6,
		},
		"sleep": {command: []string{"sh", "-c", "sleep 2m; hostname; env | cat"}, stdout: "pod-1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var stdout, stderr bytes.Buffer

			c := container.Container{
				Hostname: "pod-1", Env: []string{"A=b"}, NVIDIA: test.nvidia,
				Sleep: func(_ context.Context, d time.Duration) error {
					slept = d

					return nil
				},
			}

			status, err := c.Run(t.Context(), test.command, container.Streams{
				Stdin: iotest.HalfReader(strings.NewReader(test.stdin)), Stdout: &stdout, Stderr: &stderr,
			})
			if test.err != "" {
				require.ErrorContains(t, err, test.err)

				return
			}

			require.NoError(t, err)
			assert.Equal(t, test.status, status, stderr.String())
			assert.Contains(t, stdout.String(), test.stdout)
			assert.Contains(t, stderr.String(), test.stderr)
			assert.NotContains(t, stdout.String(), "never")
		})
	}

	t.Cleanup(func() { assert.Equal(t, 2*time.Minute, slept) })
}

func TestCanRun(t *testing.T) {
	t.Parallel()

	for script, known := range map[string]bool{
		"echo a && nvidia-smi -L":       true,
		"f() { sleep 1; }; f":           true,
		"cp /usr/bin/x /host":           false,
		"if true; then wget x; fi":      false,
		"echo $(curl x)":                false,
		"if":                            true,
		"while true; do sleep 10; done": true,
	} {
		assert.Equal(t, known, container.CanRun([]string{"sh", "-c", script}), script)
	}

	assert.True(t, container.CanRun([]string{"/usr/bin/nvidia-smi"}))
	assert.True(t, container.CanRun([]string{"sh"}))
	assert.False(t, container.CanRun([]string{"sh", "/start.sh"}))
	assert.False(t, container.CanRun([]string{"cilium-agent"}))
	assert.False(t, container.CanRun(nil))
}
