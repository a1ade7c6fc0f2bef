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

func TestMappingRequests(t *testing.T) {
	t.Parallel()

	dc, endpoint := newLab(t)
	w := startProxy(t, endpoint, func() {})
	r := newTestProvider(t, w.endpoint)
	in := object{
		"name": "gpu", "comment": "d", "maps": []any{object{"id": "10de:27b0", "node": "pve1", "path": "0000:01:00"}},
	}

	created, err := r.create(typeMapping, in)
	require.NoError(t, err)

	requests := w.takeRequests()
	require.Len(t, requests, 2)
	assert.Equal(
		t, url.Values{"id": {"gpu"}, "description": {"d"}, "map": {"id=10de:27b0,node=pve1,path=0000:01:00"}},
		params(t, requests[0]),
	)

	_, err = r.change(typeMapping, created.ID, with(in, object{"comment": nil}), created.Properties)
	require.NoError(t, err)
	assert.Equal(
		t, url.Values{"map": {"id=10de:27b0,node=pve1,path=0000:01:00"}, "delete": {"description,mdev"}},
		params(t, w.takeRequests()[0]),
	)

	state, err := r.change(typeMapping, created.ID, with(in, object{"name": "card"}), created.Properties)
	require.EqualError(t, err, `Could not update PCI hardware mapping "card".: udating hardware mapping "card": the requested resource does not exist`)
	assert.Equal(t, property.Map{}, state, "the state stays as it was")
	assert.Len(t, dc.Records(datacentre.PCIMappings), 1)

	_, err = r.p.Read(t.Context(), p.ReadRequest{ID: "card", Urn: urn(typeMapping)})
	require.EqualError(t, err, "resource 'card' does not exist", "an import, which the engine refuses in the same words")
}

func TestUSBMappingRequests(t *testing.T) {
	t.Parallel()

	dc, endpoint := newLab(t)
	w := startProxy(t, endpoint, func() {})
	r := newTestProvider(t, w.endpoint)
	in := object{"name": "zigbee", "comment": "d", "maps": []any{
		object{"id": "10c4:ea60", "node": "pve1"}, object{"id": "10c4:ea60", "node": "pve2", "path": "1-4.2", "comment": "left"},
	}}

	created, err := r.create(typeUSBMapping, in)
	require.NoError(t, err)

	requests := w.takeRequests()
	require.Len(t, requests, 2)
	assert.Equal(t, url.Values{
		"id": {"zigbee"}, "description": {"d"},
		"map": {"id=10c4:ea60,node=pve1", "id=10c4:ea60,node=pve2,path=1-4.2,description=left"},
	}, params(t, requests[0]))

	_, err = r.change(typeUSBMapping, created.ID, with(in, object{"comment": nil}), created.Properties)
	require.NoError(t, err)
	assert.Equal(t, url.Values{
		"map": {"id=10c4:ea60,node=pve1", "id=10c4:ea60,node=pve2,path=1-4.2,description=left"}, "delete": {"description"},
	}, params(t, w.takeRequests()[0]))
	assert.Len(t, dc.Records(datacentre.USBMappings), 1)
}
