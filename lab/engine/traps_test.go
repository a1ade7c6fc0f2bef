package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/engine"
)

// trap is a program's mistake that the published provider punishes, and the result of a second run.
type trap struct {
	first, second object   // the VM of both runs; second nil = as first
	firstError    string   // of a first run that fails
	ignore        []string // nil = what a careful program ignores
	step, message string   // of the second run; no step = nothing to do
	vmRemoved     bool     // the second run declares no VM
	standInError  string   // the stand-in refuses the first run, which the published provider accepts
	check         func(t *testing.T, w *world)
}

// TestTraps runs small programs with mistakes, which fail or differ as with the published provider.
func TestTraps(t *testing.T) {
	t.Parallel()

	off := merged(
		bootableVM(2000), object{"started": false, "cdrom": object{"enabled": true, "fileId": "none", "interface": "ide0"}},
	)
	careless := []string{}

	for name, test := range map[string]trap{
		"a careful program has nothing to do the second time": {first: off},
		"a program that forgets network devices fails at once": {
			first: merged(off, object{"networkDevices": nil}), firstError: "network_device[0]", step: opFailed,
		},
		"a program that forgets cdrom fails the second time": {
			first: merged(off, object{"cdrom": nil}), step: opFailed, message: "ide3",
		},
		"a program that forgets to ignore the speed updates forever": {first: off, ignore: careless, step: "update"},
		"ignoring the speed of every disk ignores nothing": {
			first: off, ignore: []string{"disks[*].speed"}, step: "update",
		},
		"a machine without a name is replaced create first, and is in its own way": {
			first:  merged(off, object{"name": nil}),
			second: merged(off, object{"name": nil, "efiDisk": object{"datastoreId": "local-lvm"}}),
			step:   opFailed, message: "VM 2000 already exists on node 'pve1'",
			standInError: "the lab's stand-in chooses no name",
		},
		"a machine with a name is replaced delete first": {
			first: off, second: merged(off, object{"efiDisk": object{"datastoreId": "local-lvm"}}), step: "replace",
		},
		"a protected machine is stopped, and then not deleted": {
			first:     merged(off, object{"started": true, "protection": true}),
			vmRemoved: true,
			step:      opFailed,
			message:   "can't remove VM 2000 - protection mode enabled",
			check: func(t *testing.T, w *world) {
				t.Helper()

				vm, ok := w.lab.Data.VM(2000)
				require.True(t, ok)
				assert.False(t, vm.Running)
			},
		},
		"a disk cannot shrink": {
			first: off, second: changed(off, "disks[].size", 1), step: opFailed, message: "Cannot shrink",
		},
		"a list of no disks changes nothing": {first: off, second: merged(off, object{"disks": []any{}})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w := newWorld(t, 1000)
			w.asRoot()

			declare := func(inputs object) map[string]declaration {
				if inputs == nil {
					return map[string]declaration{}
				}

				d := declaration{token: vmToken, inputs: inputs, ignore: test.ignore}
				if test.ignore == nil {
					d.ignore = []string{"disks[0].speed"}
				}

				return map[string]declaration{"vm": d}
			}

			_, err := w.runProgram(declare(test.first))
			if test.standInError != "" && testProviders != engine.Published {
				require.Error(t, err)
				assert.Contains(t, w.output(), test.standInError)

				return
			}

			if test.firstError == "" {
				require.NoError(t, err, w.output())
			} else {
				require.Error(t, err)
				assert.Contains(t, w.output(), test.firstError)
			}

			second := test.second
			if second == nil && !test.vmRemoved {
				second = test.first
			}

			done, _ := w.runProgram(declare(second))
			step := done["VirtualMachine vm"]

			if test.step == "replace" && strings.Contains(step, "replace") {
				step = "replace"
			}

			assert.Equal(t, test.step, step, w.output())
			assert.Contains(t, w.output(), test.message)

			if test.check != nil {
				test.check(t, w)
			}
		})
	}
}

// TestADiskFromAFile: the stand-in refuses it. The published provider imports it over SSH; without SSH it leaves half a
// machine, which later counts as complete.
func TestADiskFromAFile(t *testing.T) {
	t.Parallel()

	w := newWorld(t, 1000)
	w.configure = func(c *engine.Config) {
		c.Published = map[string]string{
			"proxmoxve:ssh": `{"username": "root", "nodes": [{"name": "pve1", "address": "127.0.0.1", "port": 1}]}`,
		}
	}

	vm := changed(merged(bootableVM(2000), object{"started": false}), "disks[].fileId", "local:iso/talos.iso")
	program := map[string]declaration{
		"image": talosISO("pve1"),
		"vm":    {token: vmToken, inputs: vm, after: []string{"image"}, ignore: []string{"disks[0].speed"}},
	}

	_, err := w.runProgram(program)
	require.Error(t, err)

	if testProviders == engine.StandIn {
		assert.Contains(t, w.output(), "the lab's stand-in does not know disks[0].fileId")

		return
	}

	assert.Contains(t, w.output(), "over SSH")

	_, err = w.runProgram(program)
	require.NoError(t, err, w.output())

	half, ok := w.lab.Data.VM(2000)
	require.True(t, ok)
	assert.NotContains(t, half.Config, "scsi0")
}

// TestMissingGuestAgentCostsItsTimeout waits for the whole timeout at the creation and at every refresh, and gets no
// addresses.
func TestMissingGuestAgentCostsItsTimeout(t *testing.T) {
	t.Parallel()

	const timeout = 4 * time.Second

	w := newWorld(t, 1000)
	vm := merged(bootableVM(2000), object{
		"cdrom": object{"enabled": true, "fileId": "none", "interface": "ide0"},
		"agent": object{"enabled": true, "timeout": timeout.String()},
	})

	start := time.Now()
	_, err := w.runProgram(map[string]declaration{"vm": {token: vmToken, inputs: vm, ignore: []string{"disks[0].speed"}}})
	require.NoError(t, err, w.output())
	assert.Greater(t, time.Since(start), timeout)

	start = time.Now()

	assert.Empty(t, w.refresh(programStack))
	assert.Greater(t, time.Since(start), timeout)
}

// TestOverwrittenDownloads: a refresh replaces a decompressed image, create before delete and so in vain, unless the
// program sets overwrite to false.
func TestOverwrittenDownloads(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		overwrite any
		step      string
	}{
		"by default":      {nil, opFailed},
		"where forbidden": {false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w := newWorld(t, 1000)
			file := talosISO("pve1")
			file.inputs = merged(file.inputs, object{
				"fileName": "talos.img", "decompressionAlgorithm": "zst", "overwrite": test.overwrite,
				"url": strings.ReplaceAll(file.inputs["url"].(string), ".iso", ".raw.zst"),
			})
			program := map[string]declaration{"file": file}

			_, err := w.runProgram(program)
			require.NoError(t, err, w.output())
			w.refresh(programStack)

			done, _ := w.runProgram(program)
			assert.Equal(t, test.step, done["File file"], w.output())
		})
	}
}
