package proxmoxve

import (
	"reflect"
	"slices"
	"testing"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	sdk "github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/download"
	pci "github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/hardware/mapping"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/permission"
	sdkuser "github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/user"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"

	"talos-proxmox/internal/vmdiff"
)

// elementType returns the struct behind the SDK's arguments, with its pulumi tags.
func elementType(args interface{ ElementType() reflect.Type }) reflect.Type {
	return args.ElementType()
}

// TestTablesAreThePublishedSDK compares the types of inputs and outputs, and which inputs are required.
func TestTablesAreThePublishedSDK(t *testing.T) {
	t.Parallel()

	// The SDK's types do not show which lists are required.
	lists := []string{"a role: Privileges", "a mapping: Maps"}

	for name, test := range map[string]struct {
		table         attributes
		inputs, state reflect.Type
	}{
		"a VM":       {virtualMachineTable(), elementType(vm.VirtualMachineArgs{}), elementType(vm.VirtualMachineState{})},
		"a download": {downloadFileTable(), elementType(download.FileArgs{}), elementType(download.FileState{})},
		"a mapping":  {mappingTable(), elementType(pci.PciArgs{}), elementType(pci.PciState{})},
		"a role":     {roleType().attributes, elementType(permission.RoleArgs{}), elementType(permission.RoleState{})},
		"a user":     {userType().attributes, elementType(permission.UserArgs{}), elementType(permission.UserState{})},
		"a token":    {tokenType().attributes, elementType(sdkuser.TokenArgs{}), elementType(sdkuser.TokenState{})},
		"an ACL":     {aclType().attributes, elementType(sdk.AclArgs{}), elementType(sdk.AclState{})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compare(t, "", test.table, test.inputs, false)
			compare(t, "", test.table, test.state, true)

			for i := range test.inputs.NumField() {
				field := test.inputs.Field(i)
				optional := field.Type.Kind() == reflect.Pointer || field.Type.Kind() == reflect.Slice && !slices.Contains(
					lists, name+": "+field.Name,
				)
				assert.Equal(t, !optional, test.table[field.Tag.Get("pulumi")].required, field.Name)
			}
		})
	}

	compare(t, "", configurationTable(), elementType(sdk.ProviderArgs{}), false)
}

// compare checks that every property of a table is published, with the same type. The tables omit what the program
// does not use.
func compare(t *testing.T, path string, table attributes, published reflect.Type, state bool) {
	t.Helper()

	types := map[string]reflect.Type{}

	for i := range published.NumField() {
		field := published.Field(i)
		types[field.Tag.Get("pulumi")] = field.Type
	}

	for name, a := range table {
		typ, known := types[name]
		if !assert.Equal(t, state || !a.output, known, "%s is published", join(path, name)) || !known {
			continue
		}

		kind, many, fields := shape(typ)
		assert.Equal(t, kind, a.kind, join(path, name))
		assert.Equal(t, many, a.many, join(path, name))

		if fields != nil {
			compare(t, join(path, name), a.fields, fields, state)
		}
	}
}

func shape(t reflect.Type) (kind, bool, reflect.Type) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}

	switch t.Kind() {
	case reflect.Bool:
		return boolean, false, nil
	case reflect.Int:
		return integer, false, nil
	case reflect.Struct:
		return block, false, t
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Slice {
			return texts, true, nil
		}

		k, _, fields := shape(t.Elem())

		return k, true, fields
	default:
		return text, false, nil
	}
}

// TestProgramKnowsEffects compares the program's table of a VM's fields with the stand-in's, which is independent of
// it and tested against the provider.
func TestProgramKnowsEffects(t *testing.T) {
	t.Parallel()

	effects := Effects(typeVirtualMachine)

	for _, f := range vmdiff.Fields {
		want := map[vmdiff.Effect]Effect{vmdiff.InPlace: InPlace, vmdiff.Restart: Restart}[f.Effect]
		assert.Equal(t, want, effects[f.Property], f.Property)
	}
}

func TestCheckFillsInThePublishedDefaults(t *testing.T) {
	t.Parallel()

	r := testProvider{t, Provider(testPoll, nil)}
	in := fromMap(
		r.check(typeVirtualMachine, object{"nodeName": "pve1", "name": "x", "disks": []any{object{"interface": "virtio0"}}}),
	)

	assert.Equal(t, object{"enabled": false, "fileId": "", "interface": "ide3"}, in["cdrom"])
	assert.Equal(t, object{"enabled": false, "timeout": "15m", "trim": false, "type": "virtio"}, in["agent"])
	assert.Equal(t, []any{object{"device": "socket"}}, in["serialDevices"])
	assert.Equal(t, 8.0, in["disks"].([]any)[0].(object)["size"])
	assert.Equal(t, 0.0, in["disks"].([]any)[0].(object)["speed"].(object)["iopsRead"])
	assert.Equal(t, "seabios", in["bios"])
	assert.Equal(t, 300.0, in["timeoutStopVm"])
}

func TestPreviewLeavesTheServersChoicesUnknown(t *testing.T) {
	t.Parallel()

	s := Provider(testPoll, nil)
	in, err := s.Check(t.Context(), p.CheckRequest{
		Urn: urn(typeVirtualMachine), Inputs: toProperties(with(nodeInputs(), object{"vmId": nil, "description": unknown{}})),
	})
	require.NoError(t, err)
	require.Empty(t, in.Failures)

	resp, err := s.Create(t.Context(), p.CreateRequest{Urn: urn(typeVirtualMachine), Properties: in.Inputs, DryRun: true})
	require.NoError(t, err, "a preview needs no Proxmox")

	for _, name := range []string{"vmId", "ipv4Addresses", "macAddresses", "description"} {
		assert.True(t, resp.Properties.Get(name).IsComputed(), name)
	}

	assert.Equal(t, property.New("dev-cp-1"), resp.Properties.Get("name"))
}
