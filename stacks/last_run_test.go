package stacks

import (
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components"
	"talos-proxmox/internal/enginetest"
	"talos-proxmox/internal/tokens"
)

// previousVMs returns the VMs of a stack, as its state has them.
func previousVMs(t *testing.T, document string) []resource.PropertyMap {
	t.Helper()
	r := mustDeploy(t, stackOptionsOf(t, "test", document))

	var machines []resource.PropertyMap
	for _, vm := range r.ByType(tokens.VirtualMachine) {
		machines = append(machines, vm.Inputs)
	}

	return machines
}

func TestPlanThatRunningMachinesBlockRegistersNothing(t *testing.T) {
	t.Parallel()

	last := previousVMs(t, gpuStack)
	for name, o := range map[string]enginetest.Options{
		"up":                                     {},
		"preview":                                {Preview: true},
		"up of what an earlier version deployed": {Unrecorded: true},
		"preview of it":                          {Unrecorded: true, Preview: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			run := func(document string) (*enginetest.Recorder, error) {
				stack := stackOptionsOf(t, "test", document)
				stack.Running, stack.Preview, stack.Unrecorded, stack.ID = last, o.Preview, o.Unrecorded, "9f86d081884c7d65"

				return enginetest.Run(stack, deploy)
			}
			r, err := run(strings.Replace(gpuStack, "name: gpu,", "name: ai,", 1))
			require.ErrorContains(t, err, "the plan does not fit the running machines, nothing was changed:\nPulumi.test.yaml:13: clusters[0].gpuWorkers[0].name: \"ai\" creates one-ai-1")
			assert.Empty(t, registeredResources(r))

			id := "9f86d081884c7d65" // a refused run keeps it, and gives one to a stack without
			if o.Unrecorded {
				id = r.Outputs("record")["id"].StringValue()
				assert.Len(t, id, 16)
				assert.NotEqual(t, "9f86d081884c7d65", id)
			}

			assert.Equal(t, resource.PropertyMap{
				"deployed": resource.NewProperty(true), "id": resource.NewProperty(id),
				"proxmoxCluster": resource.NewProperty(testCluster),
			}, r.Outputs("record"))

			r, err = run(gpuStack)
			require.NoError(t, err)
			assert.Empty(t, r.Warnings())

			for _, g := range r.All() {
				if g.Type == tokens.VirtualMachine {
					id := r.Outputs("record")["id"].StringValue()
					assert.Contains(t, g.Inputs["description"].StringValue(), "/test id="+id+" (Talos ", g.Name)
				}
			}
		})
	}
}

// TestEngineIsNotQueriedForAnUndeployedStack: that query would crash the engine.
func TestEngineIsNotQueriedForAnUndeployedStack(t *testing.T) {
	t.Parallel()
	r := mustDeploy(t, stackOptionsOf(t, "test", gpuStack))
	assert.Empty(t, r.Warnings())
	assert.Equal(t, []string{"record"}, r.Names(tokens.Record))
}

// registeredResources returns the registered resources without the record of the run.
func registeredResources(r *enginetest.Recorder) []enginetest.Registration {
	return slices.DeleteFunc(
		r.All(), func(registered enginetest.Registration) bool { return registered.Type == tokens.Record },
	)
}

// TestDisksOfRunningMachinesKeepTheirInterfaces expects existing disks at the interfaces in the state, and new ones at
// others.
func TestDisksOfRunningMachinesKeepTheirInterfaces(t *testing.T) {
	t.Parallel()

	with := func(disks string) string {
		return strings.Replace(gpuStack, "timeSlicing: 4", "extraDisks: ["+disks+"]", 1)
	}
	o := stackOptionsOf(t, "test", with("{sizeGiB: 10}, {sizeGiB: 10}"))
	o.Running = previousVMs(t, with("{sizeGiB: 10, interface: scsi1}"))
	r := mustDeploy(t, o)

	vm := r.ByType(tokens.VirtualMachine)["one-gpu-1-vm"]
	for path, want := range map[string]any{
		"disks[1].interface": "scsi1", "disks[1].ssd": true, "disks[2].interface": "virtio2", "disks[2].ssd": false,
	} {
		assert.Equal(t, resource.NewPropertyValue(want), vm.Input(path), path)
	}
	// The provider would take what is ignored from a disk that is added as well.
	assert.NotContains(t, vm.Request.GetIgnoreChanges(), "disks[2].interface")
	// The engine warns of a path to ignore that the state does not have.
	assert.NotContains(t, vm.Request.GetIgnoreChanges(), "disks[2].speed")
	assert.Subset(t, vm.Request.GetIgnoreChanges(), []string{"disks[0].speed", "disks[1].speed"})

	// Where the state is not known, nothing is re-attached by guess.
	o.Running = nil
	r = mustDeploy(t, o)
	assert.Contains(t, r.ByType(tokens.VirtualMachine)["one-gpu-1-vm"].Request.GetIgnoreChanges(), "disks[1].interface")
}

// TestChangesWithoutEffectOnRunningMachines expects a warning only in the run that makes the change.
func TestChangesWithoutEffectOnRunningMachines(t *testing.T) {
	t.Parallel()

	linked := strings.Replace(gpuStack, "      network:", "      clone: linked\n      network:", 1)
	require.NotEqual(t, gpuStack, linked)
	o := stackOptionsOf(t, "test", linked)
	o.Running = previousVMs(t, gpuStack)
	r := mustDeploy(t, o)
	assert.Empty(t, r.Warnings(), "what an earlier version did not record")
	settings := r.Outputs("record")["making"].ObjectValue()
	assert.Equal(t, resource.NewProperty("linked"), settings["one-gpu clone"])

	settings["one-gpu clone"] = resource.NewProperty("full")
	o.Record = resource.PropertyMap{"making": resource.NewProperty(settings)}
	r = mustDeploy(t, o)
	assert.Equal(t, []string{
		"clusters[0].clone: full → linked does not affect running machines (one-gpu-1, one-gpu-2), only new ones; " +
			"to recreate a worker, lower count and raise it again",
	}, r.Warnings())
}

// TestVersionsThatArePutBack: the upgrade to the versions of the last run may have been cut off, so the upgrades are
// called although the state's last calls were for the planned versions.
func TestVersionsThatArePutBack(t *testing.T) {
	t.Parallel()

	o := stackOptionsOf(t, "test", gpuStack)
	o.Running = previousVMs(t, gpuStack)
	recorded := mustDeploy(t, o).Outputs("record")["versions"].ObjectValue()["one"].StringValue()
	require.Regexp(t, `^0: Talos v1\.13\.0 [0-9a-f]{64} and v1\.13\.0 [0-9a-f]{64}, Kubernetes v1\.36\.0$`, recorded)

	for last, want := range map[string]struct{ record, follows string }{
		recorded:           {recorded, ""},
		"3" + recorded[1:]: {"3" + recorded[1:], "change 3 of versions"},
		"3: Talos of an upgrade that was cut off": {"4" + recorded[1:], "change 4 of versions"},
	} {
		versions := resource.PropertyMap{"one": resource.NewProperty(last)}
		o.Record = resource.PropertyMap{"versions": resource.NewProperty(versions)}
		r := mustDeploy(t, o)
		assert.Equal(t, want.record, r.Outputs("record")["versions"].ObjectValue()["one"].StringValue())

		for _, name := range []string{"one-talos", "one-kubernetes"} {
			environment := r.ByType(tokens.LocalCommand)[name].Input("environment")
			if want.follows == "" {
				assert.True(t, environment.IsNull(), name)
			} else {
				assert.Equal(t, want.follows, environment.ObjectValue()[components.TriggerVariable].StringValue(), name)
			}
		}
	}
}

func TestLastRunHasTalosVersions(t *testing.T) {
	t.Parallel()

	last := newLastRun()
	require.NoError(t, last.add("urn:pulumi:a::b::c::one", components.TalosClusterType, map[string]any{
		"talosVersions": map[string]any{"one-cp-1": "v1.12.1"}, "schematics": map[string]any{"one-cp-1": "376567"},
		"generations": map[string]any{"one-cp-1": "generation of 2000"},
	}))
	require.NoError(t, last.add("urn:pulumi:a::b::c$"+tokens.LocalCommand+"::one-bootstrap", tokens.LocalCommand, nil))
	require.NoError(t, last.add("urn:pulumi:a::b::c$command:local:Command::two-healthy", tokens.LocalCommand, nil))
	assert.Equal(t, map[string]string{"one-cp-1": "v1.12.1"}, last.talos)
	assert.Equal(t, map[string]string{"one-cp-1": "376567"}, last.schematics)
	assert.Equal(t, map[string]string{"one-cp-1": "generation of 2000"}, last.generations)
	assert.True(t, last.isBootstrapped("one"))
	assert.False(t, last.isBootstrapped("two"))
}

// TestLastRunHasKubernetesVersions expects that a preview refuses upgrades of Kubernetes over several minor versions.
func TestLastRunHasKubernetesVersions(t *testing.T) {
	t.Parallel()

	const healthy = "urn:pulumi:a::b::c$" + tokens.LocalCommand + "::one-healthy"

	last := newLastRun()
	require.NoError(t, last.add(healthy, tokens.LocalCommand, map[string]any{
		"stdout": `{"healthy":true,"nodes":{"one-cp-1":{"kubelet":"v1.34.1","apiServer":"v1.34.1"}}}` + "\n",
	}))

	plan, err := PlanFile("test", []byte(strings.Replace(gpuStack, "config:\n", "config:\n  proxmoxve:endpoint: https://10.0.0.2:8006/\n", 1)))
	require.NoError(t, err)

	require.NoError(t, last.add("urn:pulumi:a::b::c$"+tokens.LocalCommand+"::one-gitops", tokens.LocalCommand, nil))

	problems, warnings := last.checkPlan(t.Context(), plan, nil)
	assert.Contains(t, strings.Join(warnings, "\n"), "clusters[0].gitops: is no longer set")
	require.ErrorContains(t, problems, "clusters[0].kubernetesVersion: \"v1.36.0\" is 2 minor versions newer")

	last.kubernetes["one"] = []string{"v1.36.0", "v1.36.0"} // someone has upgraded it
	problems, _ = last.checkPlan(t.Context(), plan, nil)
	require.Empty(t, problems)
}
