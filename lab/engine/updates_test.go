package engine_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/providers/proxmoxve"
	"talos-proxmox/lab/server"
)

// update is a change of one property of a VM; nil = not set.
type update struct {
	from, to any
	with     object // other inputs of the VM
	want     proxmoxve.Effect
}

// TestVMUpdateEffects changes every property of a VM, each on its own VM, and compares the effect with the stand-in's
// table. The published provider follows the same table, if this test runs with it.
func TestVMUpdateEffects(t *testing.T) {
	t.Parallel()

	cases, table := updates(), proxmoxve.Effects(vmToken)

	for path, effect := range table {
		_, covered := cases[path]
		if reason := untested[path]; reason == "" && !strings.HasPrefix(path, "disks[].speed.") { // nobody sets it
			require.True(t, covered, "%s (%s) is changed by no case", path, effect)
		}
	}

	for path := range cases {
		require.Contains(t, table, path, "the table lacks it")
	}

	const hosts = 2 + gpuCases

	w := openWorld(t, server.Options{Speed: 1000, Hosts: hosts})
	w.asRoot()
	w.lab.Data.Put(datacentre.Pools, "lab", nil)

	paths := slices.Sorted(maps.Keys(cases))
	program := map[string]declaration{}

	var entries []string

	for i := range hosts {
		host := fmt.Sprintf("pve%d", i+1)
		program["image of "+host] = talosISO(host)
		entries = append(entries, "id=10de:27b0,node="+host+",path=0000:01:00,iommugroup=13,subsystem-id=10de:16fa")
	}

	for _, name := range []string{"gpu", "card"} {
		mapping := datacentre.Config{}
		mapping.Set("map", entries...)
		w.lab.Data.Put(datacentre.PCIMappings, name, mapping)
	}

	for name, entry := range map[string]string{"zigbee": "id=10c4:ea60", "zwave": "id=0658:0200,path=1-7.1"} {
		mapping := datacentre.Config{}
		mapping.Set("map", entry+",node=pve1")
		w.lab.Data.Put(datacentre.USBMappings, name, mapping)
	}

	for _, vmid := range []int{900, 901} {
		source := merged(
			bootableVM(vmid),
			object{"template": true, "started": false, "cdrom": object{"enabled": true, "fileId": "none", "interface": "ide0"}},
		)
		program[fmt.Sprint("template ", vmid)] = declaration{token: vmToken, inputs: source, ignore: []string{"disks[0].speed"}}
	}

	for i, path := range paths {
		inputs := changed(merged(bootableVM(2000+i), cases[path].with), path, cases[path].from)
		after := []string{"template 900", "template 901", "image of " + inputs["nodeName"].(string)}
		program[path] = declaration{token: vmToken, inputs: inputs, after: after, ignore: []string{"disks[0].speed"}}
	}

	_, err := w.runProgram(program)
	require.NoError(t, err, w.output())

	before := map[string]int{}

	for i, path := range paths {
		before[path] = len(w.tasksOf(2000 + i))
		d := program[path]
		d.inputs = changed(d.inputs, path, cases[path].to)
		program[path] = d
	}

	done, _ := w.runProgram(program, optup.ContinueOnError())

	for i, path := range paths {
		got := observedEffect(done["VirtualMachine "+path], w.tasksOf(2000 + i)[before[path]:])
		want := cases[path].want

		if want == "" {
			want = table[path]
		}

		assert.Equal(t, want, got, "%s: %s, tasks %v", path, done["VirtualMachine "+path], w.tasksOf(2000 + i)[before[path]:])
	}

	if t.Failed() {
		t.Log(w.output())
	}
}

// observedEffect derives the effect on a VM from the engine's step and Proxmox' tasks.
func observedEffect(step string, tasks []string) proxmoxve.Effect {
	switch {
	case step == opFailed:
		return proxmoxve.Refused
	case step == "replace" || step == "create-replacement" || step == "delete-replaced":
		return proxmoxve.Replace
	case slices.Contains(tasks, "qmreboot") || slices.Contains(tasks, "qmstart"):
		return proxmoxve.Restart
	case step == "update":
		return proxmoxve.InPlace
	case step == "":
		return proxmoxve.Ignored
	default:
		return proxmoxve.Effect("nothing: " + step)
	}
}

// gpuCases is how many hosts with a GPU the cases need, from pve3 on.
const gpuCases = 4

// untested are the properties that no case changes, and why.
var untested = map[string]string{
	"disks[].pathInDatastore": "chosen by Proxmox",
	"macAddresses":            "read from the network devices",
	"memory.shared":           "always 0",
	"hostpcis[].device":       "the number of a slot: changing it is another device",
	"hostpcis[].id":           "as mapping",
	"usbs[].host":             "as mapping",
	"networkDevices[].bridge": "the lab's hosts have one bridge",
}
