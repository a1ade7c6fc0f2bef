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

func TestPoliciesAreComplete(t *testing.T) {
	t.Parallel()

	var names []string

	for _, p := range policies() {
		names = append(names, p.Name)

		assert.NotEmpty(t, p.Description, p.Name)
		assert.NotEmpty(t, p.Reason, p.Name)

		checks := 0

		for _, set := range []bool{p.Stack != nil, p.Resource != nil, p.Remediate != nil} {
			if set {
				checks++
			}
		}

		assert.Equal(t, 1, checks, p.Name)
		assert.True(
			t, p.Stack == nil || len(p.Options) == 0, "%s: policies about the whole stack get no configuration from policyx",
			p.Name,
		)

		registered := p.register(&planCache{settings: testSettings})
		assert.Equal(t, p.level(), registered.EnforcementLevel(), p.Name)

		if schema := registered.ConfigSchema(); schema != nil {
			for key, property := range schema.Properties {
				_, err := structpb.NewStruct(property)
				assert.NoError(t, err, "%s.%s is sent to the engine", p.Name, key)
			}
		}
	}

	slices.Sort(names)
	assert.Len(t, slices.Compact(slices.Clone(names)), len(names), "no name twice")
}

// validPlan has a resource of every kind that policies check, without violations.
func validPlan() []resource {
	cluster := newResource(tokens.TalosCluster, "one", props{"talosVersion": "v1.12.6", "kubernetesVersion": "v1.35.0"})
	component := newResource("talos-proxmox:node:TalosNode", "one-cp-1", nil).in(cluster)
	provider := props{"apiToken": secret{"pulumi@pve!talos=x"}, "endpoint": "https://10.0.0.2:8006/", "insecure": false}

	return []resource{
		cluster, component,
		cp("one-cp-1-vm", "pve1", 2000).with(
			props{"initialization": props{"ipConfigs": []any{props{"ipv4": props{"address": "10.0.0.10/24"}}}}},
		).
			in(component).from(provider).protected(),
		worker("one-gpu-1", "pve1", 4000).with(gpuOf("gpu")).from(provider),
		newResource(tokens.PCIMapping, "gpu", props{"name": "gpu", "maps": []any{props{"node": "pve1", "path": "0000:01:00"}}}),
		newResource(tokens.GoldenTemplate, "t", props{"vmid": 901, "version": "v1.12.6"}),
		newResource(tokens.Secrets, "one-secrets", props{"talosVersion": "v1.12"}).protected(),
		newResource(tokens.LocalCommand, "one-bootstrap", props{"create": "talosops bootstrap", "stdin": secret{"{}"}}).protected(),
		newResource(
			tokens.File, "f",
			props{"fileName": "talos-v1.12.6.iso", "url": "https://factory.talos.dev/image/ab", "verify": true},
		),
		newResource(tokens.File, "unnamed", props{"url": "https://example.org/debian-13-20260101.qcow2", "checksum": "ab"}),
		newResource(tokens.RemoteCommand, "pve1-apply", props{
			"connection": secret{props{"host": "10.0.0.2", "hostKey": "ssh-ed25519 AAAA"}},
		}),
		newResource(tokens.Schematic, "s", props{"schematic": "customization: {}\n"}),
		newResource(tokens.ProxmoxProvider, "p", provider),
		newResource(tokens.Role, "r", props{"privileges": []string{"VM.Audit"}}),
		newResource(tokens.ACL, "a", props{"roleId": "TalosProxmox", "path": "/vms"}),
		newResource(tokens.UserToken, "u", props{"privilegesSeparation": true}),
		newResource(tokens.User, "v", props{"acls": []any{props{"roleId": "TalosProxmox", "path": "/vms"}}}),
		newResource(tokens.Group, "g", props{"acls": []any{props{"roleId": "TalosProxmox", "path": "/vms"}}}),
		nodeConfiguration("kind: NetworkDefaultActionConfig\ningress: block\n", "kind: VolumeConfig\nname: STATE\nencryption: {}\n",
			"kind: VolumeConfig\nname: EPHEMERAL\nencryption: {}\n",
			"machine: {install: {image: \"factory.talos.dev/nocloud-installer/ab:v1.12.6\"}}").in(component).with(
			props{"node": "10.0.0.10"},
		),
	}
}

func evaluateAll(t *testing.T, resources []resource) map[string][]string {
	t.Helper()

	found := map[string][]string{}
	large := productionSettings()
	large.Hosts = map[string]capacity{"pve1": {Cores: 64, MemoryMiB: 1 << 20}}

	for _, p := range policies() {
		if p.Remediate != nil {
			for _, r := range resources {
				p.Remediate(defaults(p), r)
			}

			continue
		}

		if messages := evaluate(t, p.Name, *large, nil, resources...); len(messages) > 0 {
			found[p.Name] = messages
		}
	}

	return found
}

// mutate calls with every value of the plan replaced in turn.
func mutate(resources []resource, with property.Value, call func(path string, changed []resource)) {
	for i, r := range resources {
		replaceEach(r.Properties.property, func(path string, replaced property.Value) {
			if path == "" { // the engine always passes a map
				return
			}

			changed := slices.Clone(resources)
			changed[i].Properties = value{replaced}
			call(r.Name+" "+path, changed)
		}, with)
	}
}

// replaceEach calls with v itself and every value in it replaced in turn.
func replaceEach(v property.Value, call func(path string, replaced property.Value), with property.Value) {
	call("", with)

	switch {
	case v.IsMap():
		for key, element := range v.AsMap().AllStable {
			replaceEach(element, func(path string, replaced property.Value) {
				call("."+key+path, property.New(v.AsMap().Set(key, replaced)).WithSecret(v.Secret()))
			}, with)
		}
	case v.IsArray():
		list := v.AsArray().AsSlice()
		for i, element := range list {
			replaceEach(element, func(path string, replaced property.Value) {
				changed := slices.Clone(list)
				changed[i] = replaced
				call("[]"+path, property.New(changed).WithSecret(v.Secret()))
			}, with)
		}
	}
}

// TestUnknownValuesAreAccepted also covers values of other types, which the provider refuses.
func TestUnknownValuesAreAccepted(t *testing.T) {
	t.Parallel()

	assert.Empty(t, evaluateAll(t, validPlan()), "the plan is valid")

	for name, with := range map[string]property.Value{
		"unknown":                          property.New(property.Computed),
		"unknown and secret":               property.New(property.Computed).WithSecret(true),
		"a secret that a provider emptied": property.New("").WithSecret(true),
		"a number of another kind":         property.New(7.0),
		"a list of another kind":           toProperty([]any{[]any{}}),
		"a map of another kind":            toProperty(props{"": nil}),
	} {
		mutate(validPlan(), with, func(path string, changed []resource) {
			found := evaluateAll(t, changed)
			// A value that is neither a checksum nor a connection with a key protects nothing.
			open := path == "unnamed .checksum" || path == "pve1-apply .connection"
			assert.Equal(t, open && strings.HasSuffix(name, "of another kind"), len(found) > 0, "%s: %s: %s", name, path, found)
		})
	}
}

func TestNoValuePanics(t *testing.T) {
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
		mutate(validPlan(), toProperty(with), func(path string, changed []resource) {
			assert.NotPanics(t, func() { evaluateAll(t, changed) }, "%v at %s", with, path)
		})
	}
}

func TestLevels(t *testing.T) {
	t.Parallel()

	assert.Equal(t, policyx.EnforcementLevelMandatory, policy{}.level())
	assert.Equal(t, policyx.EnforcementLevelAdvisory, policy{Advisory: true}.level())
	assert.Equal(t, policyx.EnforcementLevelRemediate, policy{Remediate: addTags}.level())
}
