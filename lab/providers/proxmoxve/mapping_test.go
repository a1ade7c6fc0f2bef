package proxmoxve

import (
	"net/url"
	"testing"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

func gpuMapping() object {
	return object{"name": "gpu", "comment": "two cards", "maps": []any{
		object{"id": "10de:27b0", "node": "pve1", "path": "0000:01:00.0", "iommuGroup": 0.0, "subsystemId": "10de:16fa"},
		object{"id": "10de:27b0", "node": "pve2", "path": "0000:02:00"},
	}}
}

// TestAMappingDeletedManuallySilentlyLeavesTheState: the published provider takes every refusal of a read for that.
func TestAMappingDeletedManuallySilentlyLeavesTheState(t *testing.T) {
	t.Parallel()

	dc, endpoint := newLab(t)
	r := newRig(t, endpoint)

	made, err := r.create(typeMapping, gpuMapping())
	require.NoError(t, err)
	assert.Equal(
		t, fromMap(made.Properties), fromMap(r.read(typeMapping, made.ID, gpuMapping(), made.Properties).Properties),
		"a refresh changes nothing",
	)

	dc.Delete(datacentre.Mappings, "gpu")
	assert.Empty(t, r.read(typeMapping, made.ID, gpuMapping(), made.Properties).ID)

	_, err = r.p.Read(t.Context(), p.ReadRequest{ID: made.ID, Urn: urn(typeMapping)})
	require.EqualError(t, err, "resource 'gpu' does not exist", "an import, which the engine refuses in the same words")

	require.NoError(
		t, r.p.Delete(t.Context(), p.DeleteRequest{ID: made.ID, Urn: urn(typeMapping), Properties: made.Properties}),
		"and is no error when deleted again",
	)
}

func TestMappingRequests(t *testing.T) {
	t.Parallel()

	_, endpoint := newLab(t)
	w := watch(t, endpoint, func() {})
	r := newRig(t, w.endpoint)
	in := object{
		"name": "gpu", "comment": "d", "maps": []any{object{"id": "10de:27b0", "node": "pve1", "path": "0000:01:00"}},
	}

	made, err := r.create(typeMapping, in)
	require.NoError(t, err)

	requests := w.recorded()
	require.Len(t, requests, 2)
	assert.Equal(
		t, url.Values{"id": {"gpu"}, "description": {"d"}, "map": {"id=10de:27b0,node=pve1,path=0000:01:00"}},
		params(t, requests[0]),
	)

	_, err = r.change(typeMapping, made.ID, with(in, object{"comment": nil}), made.Properties)
	require.NoError(t, err)
	assert.Equal(
		t, url.Values{"map": {"id=10de:27b0,node=pve1,path=0000:01:00"}, "delete": {"description,mdev"}},
		params(t, w.recorded()[0]),
	)
}

func TestMappingDiff(t *testing.T) {
	t.Parallel()

	entries := gpuMapping()["maps"].([]any)

	for name, test := range map[string]struct {
		change object
		want   map[string]p.DiffKind
	}{
		"another order is none":      {object{"maps": []any{entries[1], entries[0]}}, map[string]p.DiffKind{}},
		"another comment is written": {object{"comment": "spare"}, map[string]p.DiffKind{"comment": p.Update}},
		"a device less is written":   {object{"maps": entries[:1]}, map[string]p.DiffKind{"maps[1]": p.Delete}},
		"group 0 is not no group": {
			object{"maps": []any{with(entries[0].(object), object{"iommuGroup": nil}), entries[1]}},
			map[string]p.DiffKind{"maps[0].iommuGroup": p.Delete},
		},
		"a new name replaces nothing": {object{"name": "card"}, map[string]p.DiffKind{"name": p.Update}},
		"mediated devices are a property": {
			object{"mediatedDevices": true}, map[string]p.DiffKind{"mediatedDevices": p.Update},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			_, endpoint := newLab(t)
			r := newRig(t, endpoint)
			made, err := r.create(typeMapping, gpuMapping())
			require.NoError(t, err)
			assert.Equal(t, test.want, r.diff(typeMapping, with(gpuMapping(), test.change), made.Properties))
		})
	}
}

func TestMappingFails(t *testing.T) {
	t.Parallel()

	dc, endpoint := newLab(t)
	r := newRig(t, endpoint)

	made, err := r.create(typeMapping, gpuMapping())
	require.NoError(t, err)

	again, err := r.create(typeMapping, gpuMapping())
	require.EqualError(t, err, `Could not create PCI hardware mapping "gpu".: creating hardware mapping "gpu": `+
		`received an HTTP 500 response - Reason: create hardware mapping failed: pci ID 'gpu' already defined`)
	assert.Empty(t, again.ID)

	state, err := r.change(typeMapping, made.ID, with(gpuMapping(), object{"name": "card"}), made.Properties)
	require.EqualError(t, err, `Could not update PCI hardware mapping "card".: udating hardware mapping "card": the requested resource does not exist`)
	assert.Equal(t, property.Map{}, state, "the state stays as it was")
	assert.Len(t, dc.Records(datacentre.Mappings), 1)
}

func TestMappingChecks(t *testing.T) {
	t.Parallel()

	entry := gpuMapping()["maps"].([]any)[0].(object)

	for name, test := range map[string]struct {
		change          object
		property, words string
	}{
		"no device": {object{"maps": []any{}}, "maps", "at least 1 elements"},
		"a path of several": {
			object{"maps": []any{with(entry, object{"path": "0000:01:00.0;0000:01:00.1"})}},
			"maps[0].path",
			"not a valid Linux device path",
		},
		"a path without a domain": {
			object{"maps": []any{with(entry, object{"path": "01:00.0"})}}, "maps[0].path", "not a valid Linux device path",
		},
		"an id with 0x": {
			object{"maps": []any{with(entry, object{"id": "0x10de:0x27b0"})}}, "maps[0].id", "valid hardware mapping device ID",
		},
		"a subsystem without card": {
			object{"maps": []any{with(entry, object{"subsystemId": "10de"})}},
			"maps[0].subsystemId",
			"valid hardware mapping device ID",
		},
		"no host": {
			object{"maps": []any{with(entry, object{"node": nil})}}, "maps[0].node", "Missing required argument",
		},
		"an empty comment":       {object{"comment": ""}, "comment", "at least 1"},
		"a comment with a space": {object{"comment": "gpu "}, "comment", "whitespace"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			resp, err := Provider(testPoll).Check(
				t.Context(), p.CheckRequest{Urn: urn(typeMapping), Inputs: toProperties(with(gpuMapping(), test.change))},
			)
			require.NoError(t, err)
			require.Len(t, resp.Failures, 1)
			assert.Equal(t, test.property, resp.Failures[0].Property)
			assert.Contains(t, resp.Failures[0].Reason, test.words)
		})
	}
}
