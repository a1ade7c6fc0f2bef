package engine_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var record = flag.String(
	"record", "", "file to record the state of this program's stack in, for TestAStateOfAnEarlierProgram",
)

// earlierState is the state that the program of 2026-11-22 left, before its components had their own arguments.
const earlierState = "testdata/earlier.json"

// earlierStack has what components differ in: a prepared host that reboots, a GPU with its mapping, a control plane,
// and workers with and without a GPU.
func earlierStack(t *testing.T) gpuStack {
	t.Helper()

	return gpuStack{Workers: 1, TimeSlicing: 2, Labels: "{example.org/a: b}", Taints: `["dedicated=gpu:NoSchedule"]`, Patches: "[\"machine: {sysctls: {vm.max_map_count: '262144'}}\"]\n      workers: [{name: general, count: 1, cores: 2, memoryMiB: 2048, diskGiB: 20, hosts: [pve2], extraDisks: [{sizeGiB: 1}], extraNICs: [{bridge: vmbr0}]}]"}
}

// earlier is a resource as an earlier program registered it.
type earlier struct {
	URN     string `json:"urn"`
	Parent  string `json:"parent,omitempty"`
	Custom  bool   `json:"custom,omitempty"`
	Protect bool   `json:"protect,omitempty"`
	Inputs  any    `json:"inputs,omitempty"`
}

// Leaves of the recorded inputs that differ from lab to lab, or are long.
const (
	theLabs   = "(this lab's)"
	theDigest = "sha256 "
	longText  = 200
)

// gained says that a resource is a command of changes to running machines, which earlier programs did not have: it is
// created, and does nothing to a cluster that is as planned.
func gained(name string) bool {
	return strings.HasSuffix(name, "-talos") || strings.HasSuffix(name, "-kubernetes") || strings.HasSuffix(name, "-leave")
}

// TestAStateOfAnEarlierProgram continues a stack of an earlier program: nothing of it is deleted or replaced. The
// recorded state has no secret and no address: this lab's take their place where it had its own.
func TestAStateOfAnEarlierProgram(t *testing.T) {
	t.Parallel()

	one, state := upOf(t)

	if *record != "" {
		_, other := upOf(t)
		text, err := json.MarshalIndent(recorded(t, state, other), "", " ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(*record, append(text, '\n'), 0o600))

		return
	}

	content, err := os.ReadFile(earlierState)
	require.NoError(t, err)

	var left []earlier
	require.NoError(t, json.Unmarshal(content, &left))
	require.NotEmpty(t, left)

	one.importState(state, left)

	done := one.up(one.stackText)
	for name, op := range done {
		assert.Equal(t, map[bool]string{true: "create", false: "update"}[gained(name)], op, name)
	}

	assert.Contains(t, one.said(), "all nodes are up to date: 3")
	assert.NotContains(t, one.said(), "one-cp-1: upgrade: ")

	t.Log("updated:", done)
}

// earlierWorld is a lab on which the stack was deployed.
type earlierWorld struct {
	*world

	stackText string
}

// upOf deploys the stack on its own lab, and returns what it left.
func upOf(t *testing.T) (earlierWorld, apitype.DeploymentV3) {
	t.Helper()

	w := newWorld(t, testSpeed)
	stack := earlierStack(t)
	stack.Network = w.network
	one := earlierWorld{w, strings.NewReplacer("v1.14.4", "v1.12.6", "v1.37.2", "v1.35.0").Replace(stack.yaml(t))}
	one.up(one.stackText)

	var document struct {
		Deployment apitype.DeploymentV3 `json:"deployment"`
	}
	require.NoError(t, json.Unmarshal([]byte(w.state(one.stackText)), &document))

	return one, document.Deployment
}

// recorded are the resources of a state without what another lab's has different.
func recorded(t *testing.T, state, other apitype.DeploymentV3) []earlier {
	t.Helper()

	var list []earlier

	for _, r := range state.Resources {
		i := slices.IndexFunc(other.Resources, func(o apitype.ResourceV3) bool { return o.URN == r.URN })
		require.GreaterOrEqual(t, i, 0, r.URN)
		list = append(list, earlier{
			URN: string(r.URN), Parent: string(r.Parent), Custom: r.Custom, Protect: r.Protect,
			Inputs: common(any(r.Inputs), any(other.Resources[i].Inputs)),
		})
	}

	return list
}

// common is what two values have in common; secrets are in no lab's state alike.
func common(a, b any) any {
	switch a := a.(type) {
	case map[string]any:
		other, same := b.(map[string]any)
		if _, secret := a["plaintext"]; secret || !same {
			return theLabs
		}

		fields := map[string]any{}
		for key, value := range a {
			fields[key] = common(value, other[key])
		}

		return fields
	case []any:
		other, same := b.([]any)
		if !same || len(a) != len(other) {
			return theLabs
		}

		list := make([]any, 0, len(a))
		for i, value := range a {
			list = append(list, common(value, other[i]))
		}

		return list
	case string:
		if a == b && len(a) > longText {
			return digest(a)
		}
	}

	if a != b {
		return theLabs
	}

	return a
}

func digest(text string) string { return fmt.Sprintf("%s%x", theDigest, sha256.Sum256([]byte(text))) }

// importState has the stack continue with a state that has an earlier program's resources.
func (w *earlierWorld) importState(state apitype.DeploymentV3, left []earlier) {
	w.t.Helper()

	var resources []apitype.ResourceV3

	for _, e := range left {
		i := slices.IndexFunc(state.Resources, func(r apitype.ResourceV3) bool { return string(r.URN) == e.URN })
		require.GreaterOrEqual(w.t, i, 0, "this program has no %s: it would be deleted", e.URN)

		r := state.Resources[i]
		assert.Equal(w.t, e.Parent, string(r.Parent), e.URN)
		assert.Equal(w.t, e.Custom, r.Custom, e.URN)
		r.Protect = e.Protect
		r.Inputs, _ = filled(e.Inputs, any(r.Inputs)).(map[string]any)
		r.Dependencies = slices.DeleteFunc(r.Dependencies, func(on resource.URN) bool { return gained(string(on)) })
		resources = append(resources, r)
	}

	for _, r := range state.Resources {
		known := gained(string(r.URN)) || slices.ContainsFunc(left, func(e earlier) bool { return e.URN == string(r.URN) })
		assert.True(w.t, known, "the earlier program had no %s: it would be created", r.URN)
	}

	state.Resources = resources

	var text bytes.Buffer
	require.NoError(w.t, json.NewEncoder(&text).Encode(state))

	w.setState(w.stackText, apitype.UntypedDeployment{Version: 3, Deployment: text.Bytes()})
}

// filled is a recorded value with this lab's values where labs differ.
func filled(was, now any) any {
	switch was := was.(type) {
	case map[string]any:
		other, _ := now.(map[string]any)

		fields := map[string]any{}
		for key, value := range was {
			fields[key] = filled(value, other[key])
		}

		return fields
	case []any:
		other, _ := now.([]any)

		list := make([]any, 0, len(was))

		for i, value := range was {
			var at any
			if i < len(other) {
				at = other[i]
			}

			list = append(list, filled(value, at))
		}

		return list
	case string:
		text, _ := now.(string)
		if was == theLabs || strings.HasPrefix(was, theDigest) && was == digest(text) {
			return now
		}
	}

	return was
}
