package engine_test

import (
	"maps"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// TestTemplatesWithoutSSH makes a template through Proxmox' API alone, with runs that are killed in the middle of it:
// recovery removes what they left, and so does the next run. The template is the one of the build script.
func TestTemplatesWithoutSSH(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed/12)
	s := stack{Network: w.network, Source: "import", OneHost: true, Clusters: []cluster{clusterOne(1, 0)}}
	isBuilding := func(w *world) bool { return w.hasDescription(" state=building ") }
	kill := func() {
		w.killedUp(s.yaml(t), isBuilding, true)
		w.killProgram("talosops", "template")
		require.True(t, isBuilding(w), "the build has ended before it was killed")
	}

	kill()
	assert.Regexp(t, `VM 901 talos-v1\.14\.4-talos on pve1 \(stopped\) is removed`, w.recover())
	assert.Empty(t, w.lab.Data.VMs())
	w.requireRecovered(s.yaml(t))

	kill()
	w.cancelRun(s.yaml(t))
	w.up(s.yaml(t), optup.Refresh())
	assert.Contains(t, w.output(), "VM 901 is a half-made template of an earlier run: it is made anew")
	w.requireRunning(1)
	w.up(s.yaml(t), optup.ExpectNoChanges())
	assert.NotContains(t, w.state(s.yaml(t)), "command:remote:Command", "nothing went over SSH")

	// The template of the build script has the same configuration, and takes its place; machines stay.
	imported := w.templateConfig()
	s.Source = "image"
	done := w.up(s.yaml(t))
	assert.Empty(t, vms(append(done.withOp("update"), done.withOp("replace")...)))
	assert.Equal(t, w.templateConfig(), imported)
	assert.Empty(t, w.lab.Data.Volumes("pve1", "local", "import"), "the file of the former source is deleted")

	s.Source = "import"
	w.up(s.yaml(t))
	assert.Equal(t, imported, w.templateConfig())
	w.up(s.yaml(t), optup.ExpectNoChanges())
	w.requireRunning(1)

	w.destroy(s.yaml(t))
	assert.Empty(t, w.lab.Data.VMs())
	assert.Empty(t, w.lab.Data.Volumes("pve1", "local", "import"))
}

// templateConfig returns the configuration of the only template, without what is new with each.
func (w *world) templateConfig() datacentre.Config {
	w.t.Helper()

	for _, vm := range w.lab.Data.VMs() {
		if !vm.Template {
			continue
		}

		config := maps.Clone(vm.Config)
		for _, key := range []string{"description", "meta", "smbios1", "vmgenid", "net0"} {
			require.NotEmpty(w.t, config[key], key)
			delete(config, key)
		}

		return config
	}

	w.t.Error("there is no template")

	return nil
}
