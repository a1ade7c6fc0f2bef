package components

import (
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/enginetest"
	"talos-proxmox/internal/tokens"
)

func TestUSBMapping(t *testing.T) {
	t.Parallel()

	r, err := enginetest.Run(enginetest.Options{}, func(ctx *pulumi.Context) error {
		_, err := NewUSBMapping(ctx, "zigbee", USBMappingArgs{Devices: []MappedUSBDevice{
			{Host: "pve1", ID: "10c4:ea60"}, {Host: "pve2", ID: "10c4:ea60", Port: "1-4.2"},
		}})

		return err
	})
	require.NoError(t, err)

	mapped := r.ByType(tokens.USBMapping)["zigbee-mapping"]
	assert.Equal(t, resource.NewProperty("zigbee"), mapped.Input("name"))
	assert.Equal(t, resource.NewProperty([]resource.PropertyValue{
		resource.NewProperty(resource.PropertyMap{"id": resource.NewProperty("10c4:ea60"), "node": resource.NewProperty("pve1")}),
		resource.NewProperty(resource.PropertyMap{
			"id": resource.NewProperty("10c4:ea60"), "node": resource.NewProperty("pve2"), "path": resource.NewProperty("1-4.2"),
		}),
	}), mapped.Input("maps"))
}

func TestUSBMappingRefusesWhatProxmoxDoes(t *testing.T) {
	t.Parallel()

	for message, devices := range map[string][]MappedUSBDevice{
		"devices: is empty":                    {},
		"devices[0]: is not described in full": {{Host: "pve1"}},
		`devices[1].host: "pve1" has another device of this mapping`: {
			{Host: "pve1", ID: "0658:0200", Port: "1-7.1"}, {Host: "pve1", ID: "0658:0200", Port: "1-7.2"},
		},
	} {
		_, err := enginetest.Run(enginetest.Options{}, func(ctx *pulumi.Context) error {
			_, err := NewUSBMapping(ctx, "zigbee", USBMappingArgs{Devices: devices})

			return err
		})
		require.ErrorContains(t, err, message)
	}
}
