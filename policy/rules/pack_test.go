package rules

import (
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/property"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/policyx"
	"github.com/stretchr/testify/assert"
	"google.golang.org/protobuf/types/known/structpb"

	"talos-proxmox/internal/tokens"
)

func TestPoliciesAreWholeAndUnmistakable(t *testing.T) {
	t.Parallel()

	var names []string

	for _, p := range policies() {
		names = append(names, p.Name)

		assert.NotEmpty(t, p.Description, p.Name)
		assert.NotEmpty(t, p.Reason, p.Name)

		judges := 0

		for _, given := range []bool{p.Stack != nil, p.Resource != nil, p.Remedy != nil} {
			if given {
				judges++
			}
		}

		assert.Equal(t, 1, judges, p.Name)
		assert.True(
			t, p.Stack == nil || len(p.Options) == 0, "%s: policies about the whole stack get no configuration from policyx",
			p.Name,
		)

		registered := p.register(&reading{settings: testSettings})
		assert.Equal(t, p.level(), registered.EnforcementLevel(), p.Name)

		if schema := registered.ConfigSchema(); schema != nil {
			for key, of := range schema.Properties {
				_, err := structpb.NewStruct(of)
				assert.NoError(t, err, "%s.%s goes to the engine", p.Name, key)
			}
		}
	}

	slices.Sort(names)
	assert.Len(t, slices.Compact(slices.Clone(names)), len(names), "no name twice")
}

// goodPlan has something of everything that is judged, and nothing wrong.
func goodPlan() []resource {
	cluster := res(tokens.TalosCluster, "one", props{"talosVersion": "v1.12.6", "kubernetesVersion": "v1.35.0"})
	component := res("talos-proxmox:node:TalosNode", "one-cp-1", nil).in(cluster)
	provider := props{"apiToken": secret{"pulumi@pve!talos=x"}, "endpoint": "https://10.0.0.2:8006/", "insecure": false}

	return []resource{
		cluster, component,
		cp("one-cp-1-vm", "pve1", 2000).with(
			props{"initialization": props{"ipConfigs": []any{props{"ipv4": props{"address": "10.0.0.10/24"}}}}},
		).
			in(component).from(provider).protected(),
		worker("one-gpu-1", "pve1", 4000).with(gpuOf("gpu")).from(provider),
		res(tokens.PCIMapping, "gpu", props{"name": "gpu", "maps": []any{props{"node": "pve1", "path": "0000:01:00"}}}),
		res(tokens.GoldenTemplate, "t", props{"vmid": 901, "version": "v1.12.6"}),
		res(tokens.Secrets, "one-secrets", props{"talosVersion": "v1.12"}).protected(),
		res(tokens.LocalCommand, "one-bootstrap", props{"create": "talosops bootstrap", "stdin": secret{"{}"}}).protected(),
		res(
			tokens.File, "f",
			props{"fileName": "talos-v1.12.6.iso", "url": "https://factory.talos.dev/image/ab", "verify": true},
		),
		res(tokens.File, "unnamed", props{"url": "https://example.org/debian-13-20260101.qcow2", "checksum": "ab"}),
		res(tokens.RemoteCommand, "pve1-apply", props{
			"connection": secret{props{"host": "10.0.0.2", "hostKey": "ssh-ed25519 AAAA"}},
		}),
		res(tokens.Schematic, "s", props{"schematic": "customization: {}\n"}),
		res(tokens.ProxmoxProvider, "p", provider),
		res(tokens.Role, "r", props{"privileges": []string{"VM.Audit"}}),
		res(tokens.ACL, "a", props{"roleId": "TalosProxmox", "path": "/vms"}),
		res(tokens.UserToken, "u", props{"privilegesSeparation": true}),
		res(tokens.User, "v", props{"acls": []any{props{"roleId": "TalosProxmox", "path": "/vms"}}}),
		res(tokens.Group, "g", props{"acls": []any{props{"roleId": "TalosProxmox", "path": "/vms"}}}),
		configured("kind: NetworkDefaultActionConfig\ningress: block\n", "kind: VolumeConfig\nname: STATE\nencryption: {}\n",
			"kind: VolumeConfig\nname: EPHEMERAL\nencryption: {}\n",
			"machine: {install: {image: \"factory.talos.dev/nocloud-installer/ab:v1.12.6\"}}").in(component).with(
			props{"node": "10.0.0.10"},
		),
	}
}

func judgeAll(t *testing.T, resources []resource) map[string][]string {
	t.Helper()

	found := map[string][]string{}
	large := productionSettings()
	large.Hosts = map[string]capacity{"pve1": {Cores: 64, MemoryMiB: 1 << 20}}

	for _, p := range policies() {
		if p.Remedy != nil {
			for _, r := range resources {
				p.Remedy(defaults(p), r)
			}

			continue
		}

		if messages := judge(t, p.Name, *large, nil, resources...); len(messages) > 0 {
			found[p.Name] = messages
		}
	}

	return found
}

// mutate calls with every value of the plan replaced in turn.
func mutate(resources []resource, with property.Value, call func(path string, changed []resource)) {
	for i, r := range resources {
		each(r.Properties.property, func(path string, replaced property.Value) {
			if path == "" { // the engine always hands a map
				return
			}

			changed := slices.Clone(resources)
			changed[i].Properties = value{replaced}
			call(r.Name+" "+path, changed)
		}, with)
	}
}

// each calls with v itself and every value in it replaced in turn.
func each(v property.Value, call func(path string, replaced property.Value), with property.Value) {
	call("", with)

	switch {
	case v.IsMap():
		for key, element := range v.AsMap().AllStable {
			each(element, func(path string, replaced property.Value) {
				call("."+key+path, property.New(v.AsMap().Set(key, replaced)).WithSecret(v.Secret()))
			}, with)
		}
	case v.IsArray():
		list := v.AsArray().AsSlice()
		for i, element := range list {
			each(element, func(path string, replaced property.Value) {
				changed := slices.Clone(list)
				changed[i] = replaced
				call("[]"+path, property.New(changed).WithSecret(v.Secret()))
			}, with)
		}
	}
}

// TestWhatIsNotKnownYetIsNoReasonToRefuse, and neither is what is of another kind: the provider refuses that.
func TestWhatIsNotKnownYetIsNoReasonToRefuse(t *testing.T) {
	t.Parallel()

	assert.Empty(t, judgeAll(t, goodPlan()), "the good plan is good")

	for name, with := range map[string]property.Value{
		"unknown":                          property.New(property.Computed),
		"unknown and secret":               property.New(property.Computed).WithSecret(true),
		"a secret that a provider emptied": property.New("").WithSecret(true),
		"a number of another kind":         property.New(7.0),
		"a list of another kind":           toProperty([]any{[]any{}}),
		"a map of another kind":            toProperty(props{"": nil}),
	} {
		mutate(goodPlan(), with, func(path string, changed []resource) {
			found := judgeAll(t, changed)
			// What is there and neither a checksum nor a connection with a key protects nobody.
			open := path == "unnamed .checksum" || path == "pve1-apply .connection"
			assert.Equal(t, open && strings.HasSuffix(name, "of another kind"), len(found) > 0, "%s: %s: %s", name, path, found)
		})
	}
}

func TestNoShapeOfAValueEndsAJudgement(t *testing.T) {
	t.Parallel()

	for _, with := range []any{
		nil, "", "x", "::/%zz", -1, 1e300, true,
		[]any{},
		[]any{[]any{}},
		props{},
		props{"": nil},
		secret{"x"},
		secret{props{"a": secret{1}}},
	} {
		mutate(goodPlan(), toProperty(with), func(path string, changed []resource) {
			assert.NotPanics(t, func() { judgeAll(t, changed) }, "%v at %s", with, path)
		})
	}
}

func TestLevels(t *testing.T) {
	t.Parallel()

	assert.Equal(t, policyx.EnforcementLevelMandatory, policy{}.level())
	assert.Equal(t, policyx.EnforcementLevelAdvisory, policy{Advisory: true}.level())
	assert.Equal(t, policyx.EnforcementLevelRemediate, policy{Remedy: addTags}.level())
}
