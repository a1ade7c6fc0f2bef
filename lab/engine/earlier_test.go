package engine_test

import (
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/recovery"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/tokens"
)

var record = flag.String(
	"record", "", "file to record the state of this program's stack in, for TestStateOfAnEarlierVersion",
)

// earlierStateFile is the state that the program of 2026-11-22 left, before its components had arguments of their own.
const earlierStateFile = "testdata/earlier.json"

// earlierStack has each kind of component: a prepared host that reboots, a GPU with its mapping, a control plane, and
// workers with and without a GPU.
func earlierStack(t *testing.T) gpuStack {
	t.Helper()

	return gpuStack{Workers: 1, TimeSlicing: 2, Labels: "{example.org/a: b}", Taints: `["dedicated=gpu:NoSchedule"]`, Patches: "[\"machine: {sysctls: {vm.max_map_count: '262144'}}\"]\n      workers: [{name: general, count: 1, cores: 2, memoryMiB: 2048, diskGiB: 20, hosts: [pve2], extraDisks: [{sizeGiB: 1}], extraNICs: [{bridge: vmbr0}]}]"}
}

// recordedResource is a resource as an earlier version registered it.
type recordedResource struct {
	URN     string `json:"urn"`
	Parent  string `json:"parent,omitempty"`
	Custom  bool   `json:"custom,omitempty"`
	Protect bool   `json:"protect,omitempty"`
	Inputs  any    `json:"inputs,omitempty"`
}

// Placeholders for recorded inputs that differ from lab to lab, or are long.
const (
	labSpecific  = "(this lab's)"
	digestPrefix = "sha256 "
	maxText      = 200
)

// isNewCommand reports whether a resource is a command about running machines that earlier versions did not have: it is
// created, and does nothing to a cluster that is as planned.
func isNewCommand(name string) bool {
	return strings.HasSuffix(name, "-talos") || strings.HasSuffix(name, "-kubernetes") ||
		strings.HasSuffix(name, "-leave") || strings.HasSuffix(name, "verify-machines")
}

// TestStateOfAnEarlierVersion continues a stack of an earlier version: nothing is deleted or replaced. The recorded
// state has neither secrets nor addresses: this lab's replace them.
func TestStateOfAnEarlierVersion(t *testing.T) {
	t.Parallel()

	one, state := upEarlierStack(t)

	if *record != "" {
		_, other := upEarlierStack(t)
		text, err := json.MarshalIndent(recordedResources(t, state, other), "", " ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(*record, append(text, '\n'), 0o600))

		return
	}

	one.importEarlierState(state)

	boots := one.bootTimes()

	_, err := one.preview(one.stackText)
	require.NoError(t, err)
	assert.NotContains(t, one.output(), "changes in the machine configuration")

	done := one.up(one.stackText)
	for name, op := range done {
		switch {
		case strings.HasPrefix(name, "ConfigurationApply "):
			assert.Equal(t, "delete", op, name)
		case isNewCommand(name) || strings.HasSuffix(name, "-configuration"):
			assert.Equal(t, "create", op, name)
		default:
			assert.Equal(t, "update", op, name)
		}
	}

	for _, node := range []string{"one-cp-1", "one-general-1", "one-gpu-1"} {
		assert.Contains(t, one.output(), node+": configuration: has this configuration already")
		assert.Equal(t, "delete", done["ConfigurationApply "+node+"-configuration"])
	}

	assert.Contains(t, one.output(), "all nodes are up to date: 3")
	assert.NotContains(t, one.output(), "one-cp-1: upgrade: ")
	assert.Equal(t, boots, one.bootTimes(), "nothing restarts")

	for name := range one.up(one.stackText) {
		assert.NotContains(t, name, "-configuration", "again")
	}

	t.Log("updated:", done)
}

// TestAMoveFromAnEarlierVersionIsCut: the run that takes the configurations over from the Talos provider is killed,
// with its plugins, after the first one. The next run goes on, and no machine restarts.
func TestAMoveFromAnEarlierVersionIsCut(t *testing.T) {
	t.Parallel()

	one, state := upEarlierStack(t)
	one.importEarlierState(state)

	boots := one.bootTimes()
	one.killedUp(one.stackText, func(w *world) bool {
		return strings.Contains(w.output(), "configuration: has this configuration already")
	}, true)
	one.recover()
	assert.Contains(t, one.state(one.stackText), formerConfiguration, "cut before its end")

	one.up(one.stackText)
	assert.Equal(t, boots, one.bootTimes(), "nothing restarts")
	assert.NotContains(t, one.state(one.stackText), formerConfiguration)
	assert.Empty(t, one.up(one.stackText, optup.ExpectNoChanges()))
}

// earlierWorld is a lab with the deployed stack.
type earlierWorld struct {
	*world

	stackText string
}

// importEarlierState gives the stack the state that the recorded version of the program left.
func (w earlierWorld) importEarlierState(state apitype.DeploymentV3) {
	w.t.Helper()

	content, err := os.ReadFile(earlierStateFile)
	require.NoError(w.t, err)

	var recorded []recordedResource
	require.NoError(w.t, json.Unmarshal(content, &recorded))
	require.NotEmpty(w.t, recorded)

	w.importState(withFormerConfigurations(w.t, state), recorded)
}

// upEarlierStack deploys the stack on a lab of its own, and returns its state.
func upEarlierStack(t *testing.T) (earlierWorld, apitype.DeploymentV3) {
	t.Helper()

	w := newWorld(t, testSpeed)
	stack := earlierStack(t)
	stack.Network = w.network
	one := earlierWorld{w, strings.NewReplacer("v1.14.4", "v1.12.6", "v1.37.2", "v1.35.0").Replace(stack.yaml(t))}
	one.up(one.stackText)

	return one, w.deployment(one.stackText)
}

// recordedResources returns the resources of a state without values that differ from lab to lab.
func recordedResources(t *testing.T, state, other apitype.DeploymentV3) []recordedResource {
	t.Helper()

	var list []recordedResource

	for _, r := range state.Resources {
		i := slices.IndexFunc(other.Resources, func(o apitype.ResourceV3) bool { return o.URN == r.URN })
		require.GreaterOrEqual(t, i, 0, r.URN)
		list = append(list, recordedResource{
			URN: string(r.URN), Parent: string(r.Parent), Custom: r.Custom, Protect: r.Protect,
			Inputs: commonValue(any(r.Inputs), any(other.Resources[i].Inputs)),
		})
	}

	return list
}

// commonValue returns what two values have in common; secrets are never equal in two labs.
func commonValue(a, b any) any {
	switch a := a.(type) {
	case map[string]any:
		other, same := b.(map[string]any)
		if _, secret := a["plaintext"]; secret || !same {
			return labSpecific
		}

		fields := map[string]any{}
		for key, value := range a {
			fields[key] = commonValue(value, other[key])
		}

		return fields
	case []any:
		other, same := b.([]any)
		if !same || len(a) != len(other) {
			return labSpecific
		}

		list := make([]any, 0, len(a))
		for i, value := range a {
			list = append(list, commonValue(value, other[i]))
		}

		return list
	case string:
		if a == b && len(a) > maxText {
			return digest(a)
		}
	}

	if a != b {
		return labSpecific
	}

	return a
}

func digest(text string) string {
	return fmt.Sprintf("%s%x", digestPrefix, sha256.Sum256([]byte(text)))
}

// importState replaces the resources of a state by those of an earlier version, and imports it.
func (w *earlierWorld) importState(state apitype.DeploymentV3, recorded []recordedResource) {
	w.t.Helper()

	var resources []apitype.ResourceV3

	for _, e := range recorded {
		i := slices.IndexFunc(state.Resources, func(r apitype.ResourceV3) bool { return string(r.URN) == e.URN })
		require.GreaterOrEqual(w.t, i, 0, "this program has no %s: it would be deleted", e.URN)

		r := state.Resources[i]
		assert.Equal(w.t, e.Parent, string(r.Parent), e.URN)
		assert.Equal(w.t, e.Custom, r.Custom, e.URN)
		r.Protect = e.Protect

		current := r.Inputs
		r.Inputs, _ = fillLabValues(e.Inputs, any(current)).(map[string]any)

		for input := range current {
			if _, recorded := r.Inputs[input]; !recorded { // an output of the same name is the provider's copy of it
				delete(r.Outputs, input)
			}
		}

		r.Dependencies = slices.DeleteFunc(r.Dependencies, func(on resource.URN) bool { return isNewCommand(string(on)) })
		resources = append(resources, r)
	}

	for _, r := range state.Resources {
		known := isNewCommand(string(r.URN)) ||
			slices.ContainsFunc(recorded, func(e recordedResource) bool { return e.URN == string(r.URN) })
		assert.True(w.t, known, "the earlier program had no %s: it would be created", r.URN)
	}

	state.Resources = resources
	w.setDeployment(w.stackText, state)
}

// formerConfiguration is the type of the resource that applied a node's configuration before `talosops apply` did.
const formerConfiguration = "talos:machine/configurationApply:ConfigurationApply"

// withFormerConfigurations returns a state in which the Talos provider has applied the configurations that machines
// have.
func withFormerConfigurations(t testing.TB, state apitype.DeploymentV3) apitype.DeploymentV3 {
	t.Helper()

	text, err := json.Marshal(state)
	require.NoError(t, err)

	text = regexp.MustCompile(tokens.LocalCommand+`::([\w-]+-configuration)"`).ReplaceAll(text, []byte(formerConfiguration+`::$1"`))
	require.NoError(t, json.Unmarshal(text, &state))

	var (
		provider string
		client   any
	)

	for i := range state.Resources {
		r := &state.Resources[i]
		if string(r.Type) == tokens.Secrets {
			provider, client = r.Provider, recovery.Reveal(r.Outputs)["clientConfiguration"]
		}

		if string(r.URN.Type()) != formerConfiguration {
			continue
		}

		request := wholeApply(t, state, r.Inputs)

		r.Type, r.ID, r.Provider = formerConfiguration, "machine_configuration_apply", provider
		address := request.Machine.Address.String()
		r.Inputs = map[string]any{
			"applyMode": "auto", "node": address, "endpoint": address,
			"configPatches": []any{"", "", "", "", "", "", ""},
			// Of the role, without the node's patches.
			"machineConfigurationInput": request.Configuration, "clientConfiguration": client,
		}
		r.Outputs = map[string]any{
			"applyMode": "auto", "resolvedApplyMode": "auto", "node": address, "endpoint": address,
			"machineConfiguration": request.Configuration, "machineConfigurationInput": request.Configuration,
			"clientConfiguration": client,
		}
	}

	return state
}

// wholeApply returns the request of a configuration's command, without what the state does not keep.
func wholeApply(t testing.TB, state apitype.DeploymentV3, inputs map[string]any) request.Apply {
	t.Helper()

	stdin, _ := recovery.Reveal(inputs)["stdin"].(string)
	kept := request.AppliedConfiguration(stdin)

	for _, r := range state.Resources {
		if string(r.Type) == tokens.Secrets {
			secrets, _ := recovery.Reveal(r.Outputs)["machineSecrets"].(map[string]any)
			require.True(t, kept.Resolve(secrets))
		}
	}

	require.NotEmpty(t, kept.Configuration)

	return kept.Apply
}

// withWholeRequests returns a state as the program of 2026-11-30 left it, which kept the requests of a node whole, in
// inputs and outputs.
func withWholeRequests(t testing.TB, state apitype.DeploymentV3) apitype.DeploymentV3 {
	t.Helper()

	var talosconfig string

	for _, r := range state.Resources {
		if string(r.Type) == tokens.Secrets {
			client, _ := recovery.Reveal(r.Outputs)["clientConfiguration"].(map[string]any)

			text, err := talos.ProviderClient(client).Talosconfig("one", nil)
			require.NoError(t, err)

			talosconfig = text
		}
	}

	for i := range state.Resources {
		r := &state.Resources[i]

		var (
			text []byte
			err  error
		)

		switch {
		case strings.HasSuffix(string(r.URN), tokens.OfConfiguration):
			whole := wholeApply(t, state, r.Inputs)
			whole.Talosconfig = talosconfig
			text, err = json.Marshal(whole)
		case strings.HasSuffix(string(r.URN), tokens.OfLeave):
			stdin, _ := recovery.Reveal(r.Inputs)["stdin"].(string)
			leave, parseErr := request.ParseLeave(stdin)
			require.NoError(t, parseErr)

			text, err = json.Marshal(leave)
		default:
			continue
		}

		require.NoError(t, err)

		quoted, err := json.Marshal(string(text))
		require.NoError(t, err)

		for _, properties := range []map[string]any{r.Inputs, r.Outputs} {
			stdin := maps.Clone(properties["stdin"].(map[string]any))
			stdin["plaintext"] = string(quoted)
			properties["stdin"] = stdin
		}
	}

	return state
}

// TestStateWithWholeRequests continues a stack whose state has the whole requests of nodes: nothing is replaced, no
// machine restarts or is asked for anything. What changes shrinks.
func TestStateWithWholeRequests(t *testing.T) {
	t.Parallel()

	one, s := upOne(t, 1, 2)
	file := s.yaml(t)
	state := withWholeRequests(t, one.deployment(file))
	one.setDeployment(file, state)

	boots := one.bootTimes()

	_, err := one.preview(file)
	require.NoError(t, err)
	assert.NotContains(t, one.output(), "changes in the machine configuration")

	done := one.up(file)
	for name, op := range done {
		assert.Equal(t, "update", op, name)
		assert.Regexp(t, `-leave$`, name, "a command that only its deletion runs")
	}

	assert.Len(t, done, 3)
	one.up(file, optup.ExpectNoChanges())

	s.Clusters[0].YAML = `patches: ["{machine: {sysctls: {vm.max_map_count: '262144'}}}"]`
	file = s.yaml(t)
	done = one.up(file)

	for _, node := range []string{"one-cp-1", "one-general-1", "one-general-2"} {
		assert.Equal(t, "update", done["Command "+node+tokens.OfConfiguration])
	}

	assert.Equal(t, boots, one.bootTimes(), "nothing restarts")

	for _, r := range one.deployment(file).Resources {
		name := string(r.URN)
		if !strings.HasSuffix(name, tokens.OfConfiguration) && !strings.HasSuffix(name, tokens.OfLeave) {
			continue
		}

		stdin, _ := recovery.Reveal(r.Inputs)["stdin"].(string)
		assert.Less(t, len(stdin), 700, name)
		assert.Equal(t, stdin, recovery.Reveal(r.Outputs)["stdin"], name)
	}

	assert.Empty(t, one.up(file, optup.ExpectNoChanges()))

	// Requests of the former form still remove a node.
	one.setDeployment(file, withWholeRequests(t, one.deployment(file)))

	s.Clusters[0].Workers = 1
	done = one.up(s.yaml(t))
	assert.Equal(t, "delete", done["Command one-general-2-leave"])
	one.requireNodes("one-cp-1", "one-general-1")
	one.requireRunning(2)
}

// fillLabValues returns a recorded value with this lab's values where labs differ.
func fillLabValues(recorded, current any) any {
	switch recorded := recorded.(type) {
	case map[string]any:
		other, _ := current.(map[string]any)

		fields := map[string]any{}
		for key, value := range recorded {
			fields[key] = fillLabValues(value, other[key])
		}

		return fields
	case []any:
		other, _ := current.([]any)

		list := make([]any, 0, len(recorded))

		for i, value := range recorded {
			var at any
			if i < len(other) {
				at = other[i]
			}

			list = append(list, fillLabValues(value, at))
		}

		return list
	case string:
		text, _ := current.(string)
		if recorded == labSpecific || strings.HasPrefix(recorded, digestPrefix) && recorded == digest(text) {
			return current
		}
	}

	return recorded
}
