package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/engine"
)

// trap is a mistake of a program that the published provider punishes: what a second run makes of it.
type trap struct {
	first, second object   // the VM of both runs; no second = the first again, none at all = the VM is taken out
	firstFails    string   // what the first run says when it fails
	ignore        []string // nil = what a careful program ignores
	step, says    string   // of the second run; no step = nothing to do
	gone          bool     // the second run declares no VM
	refused       string   // what the stand-in says of the first run instead; the published provider takes it
	check         func(t *testing.T, w *world)
}

// TestTraps runs small programs with mistakes, and sees them fail or differ as with the published provider.
func TestTraps(t *testing.T) {
	t.Parallel()

	off := merged(
		bootable(2000), object{"started": false, "cdrom": object{"enabled": true, "fileId": "none", "interface": "ide0"}},
	)
	careless := []string{}

	for name, test := range map[string]trap{
		"a careful program has nothing to do the second time": {first: off},
		"a program that forgets network devices fails at once": {
			first: merged(off, object{"networkDevices": nil}), firstFails: "network_device[0]", step: opFailed,
		},
		"a program that forgets cdrom fails the second time": {
			first: merged(off, object{"cdrom": nil}), step: opFailed, says: "ide3",
		},
		"a program that forgets to ignore the speed updates forever": {first: off, ignore: careless, step: "update"},
		"ignoring the speed of every disk ignores nothing": {
			first: off, ignore: []string{"disks[*].speed"}, step: "update",
		},
		"a machine without a stated name is replaced create first, and is in its own way": {
			first:  merged(off, object{"name": nil}),
			second: merged(off, object{"name": nil, "efiDisk": object{"datastoreId": "local-lvm"}}),
			step:   opFailed, says: "VM 2000 already exists on node 'pve1'",
			refused: "the lab's stand-in chooses no name",
		},
		"a machine with a stated name is replaced delete first": {
			first: off, second: merged(off, object{"efiDisk": object{"datastoreId": "local-lvm"}}), step: "replace",
		},
		"a protected machine is stopped, and then not deleted": {
			first: merged(off, object{"started": true, "protection": true}),
			gone:  true,
			step:  opFailed,
			says:  "can't remove VM 2000 - protection mode enabled",
			check: func(t *testing.T, w *world) {
				t.Helper()

				vm, ok := w.lab.Data.VM(2000)
				require.True(t, ok)
				assert.False(t, vm.Running)
			},
		},
		"a disk cannot shrink": {
			first: off, second: changed(off, "disks[].size", 1), step: opFailed, says: "Cannot shrink",
		},
		"a list of no disks changes nothing": {first: off, second: merged(off, object{"disks": []any{}})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w := newWorld(t, 1000)
			w.asRoot()

			declare := func(inputs object) map[string]declared {
				if inputs == nil {
					return map[string]declared{}
				}

				d := declared{token: vmToken, inputs: inputs, ignore: test.ignore}
				if test.ignore == nil {
					d.ignore = []string{"disks[0].speed"}
				}

				return map[string]declared{"vm": d}
			}

			_, err := w.run(declare(test.first))
			if test.refused != "" && who != engine.Published {
				require.Error(t, err)
				assert.Contains(t, w.said(), test.refused)

				return
			}

			if test.firstFails == "" {
				require.NoError(t, err, w.said())
			} else {
				require.Error(t, err)
				assert.Contains(t, w.said(), test.firstFails)
			}

			second := test.second
			if second == nil && !test.gone {
				second = test.first
			}

			done, _ := w.run(declare(second))
			step := done["VirtualMachine vm"]

			if test.step == "replace" && strings.Contains(step, "replace") {
				step = "replace"
			}

			assert.Equal(t, test.step, step, w.said())
			assert.Contains(t, w.said(), test.says)

			if test.check != nil {
				test.check(t, w)
			}
		})
	}
}

// TestADiskFromAFile is refused by the stand-in. The published provider imports it over SSH; without that it leaves
// half a machine, which then passes for a whole one.
func TestADiskFromAFile(t *testing.T) {
	t.Parallel()

	w := newWorld(t, 1000)
	w.configure = func(c *engine.Config) {
		c.Published = map[string]string{
			"proxmoxve:ssh": `{"username": "root", "nodes": [{"name": "pve1", "address": "127.0.0.1", "port": 1}]}`,
		}
	}

	vm := changed(merged(bootable(2000), object{"started": false}), "disks[].fileId", "local:iso/talos.iso")
	program := map[string]declared{
		"image": image("pve1"),
		"vm":    {token: vmToken, inputs: vm, after: []string{"image"}, ignore: []string{"disks[0].speed"}},
	}

	_, err := w.run(program)
	require.Error(t, err)

	if who == engine.StandIn {
		assert.Contains(t, w.said(), "the lab's stand-in does not know disks[0].fileId")

		return
	}

	assert.Contains(t, w.said(), "over SSH")

	_, err = w.run(program)
	require.NoError(t, err, w.said())

	half, ok := w.lab.Data.VM(2000)
	require.True(t, ok)
	assert.NotContains(t, half.Config, "scsi0")
}

// TestAnAgentThatIsNotThereCostsItsTimeout waits the whole timeout at the creation and at every refresh, and then has
// no addresses.
func TestAnAgentThatIsNotThereCostsItsTimeout(t *testing.T) {
	t.Parallel()

	const timeout = 4 * time.Second

	w := newWorld(t, 1000)
	vm := merged(bootable(2000), object{
		"cdrom": object{"enabled": true, "fileId": "none", "interface": "ide0"},
		"agent": object{"enabled": true, "timeout": timeout.String()},
	})

	start := time.Now()
	_, err := w.run(map[string]declared{"vm": {token: vmToken, inputs: vm, ignore: []string{"disks[0].speed"}}})
	require.NoError(t, err, w.said())
	assert.Greater(t, time.Since(start), timeout)

	start = time.Now()

	assert.Empty(t, w.refresh(programStack))
	assert.Greater(t, time.Since(start), timeout)
}

// TestOverwrittenDownloads sees a decompressed image replaced after a refresh, create first and so in vain, unless the
// program says that it is not to be overwritten.
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
			file := image("pve1")
			file.inputs = merged(file.inputs, object{
				"fileName": "talos.img", "decompressionAlgorithm": "zst", "overwrite": test.overwrite,
				"url": strings.ReplaceAll(file.inputs["url"].(string), ".iso", ".raw.zst"),
			})
			program := map[string]declared{"file": file}

			_, err := w.run(program)
			require.NoError(t, err, w.said())
			w.refresh(programStack)

			done, _ := w.run(program)
			assert.Equal(t, test.step, done["File file"], w.said())
		})
	}
}
