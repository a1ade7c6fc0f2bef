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

// elementType is the plain struct behind the SDK's arguments, with its pulumi tags.
func elementType(args interface{ ElementType() reflect.Type }) reflect.Type {
	return args.ElementType()
}

func TestTablesAreThePublishedSDK(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		table attributes
		sdk   reflect.Type
		state bool
	}{
		"the inputs of a VM":          {virtualMachine(), elementType(vm.VirtualMachineArgs{}), false},
		"the state of a VM":           {virtualMachine(), elementType(vm.VirtualMachineState{}), true},
		"the inputs of a download":    {downloadFile(), elementType(download.FileArgs{}), false},
		"the state of a download":     {downloadFile(), elementType(download.FileState{}), true},
		"the inputs of a mapping":     {mapping(), elementType(pci.PciArgs{}), false},
		"the state of a mapping":      {mapping(), elementType(pci.PciState{}), true},
		"the inputs of a role":        {roleType().attributes, elementType(permission.RoleArgs{}), false},
		"the state of a role":         {roleType().attributes, elementType(permission.RoleState{}), true},
		"the inputs of a user":        {userType().attributes, elementType(permission.UserArgs{}), false},
		"the state of a user":         {userType().attributes, elementType(permission.UserState{}), true},
		"the inputs of a token":       {tokenType().attributes, elementType(sdkuser.TokenArgs{}), false},
		"the state of a token":        {tokenType().attributes, elementType(sdkuser.TokenState{}), true},
		"the inputs of an ACL":        {aclType().attributes, elementType(sdk.AclArgs{}), false},
		"the state of an ACL":         {aclType().attributes, elementType(sdk.AclState{}), true},
		"the provider's own settings": {configuration(), elementType(sdk.ProviderArgs{}), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compare(t, "", test.table, test.sdk, test.state)
		})
	}
}

// compare holds a table against the SDK: every property of the table is published, with the same kind. What the program
// states nowhere is not in the tables.
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

func TestRequiredIsRequiredInTheSDK(t *testing.T) {
	t.Parallel()

	// Of lists the SDK's types do not tell.
	lists := []string{"a role: Privileges", "a mapping: Maps"}

	for name, test := range map[string]struct {
		table attributes
		sdk   reflect.Type
	}{
		"a VM":       {virtualMachine(), elementType(vm.VirtualMachineArgs{})},
		"a download": {downloadFile(), elementType(download.FileArgs{})},
		"a mapping":  {mapping(), elementType(pci.PciArgs{})}, "a role": {roleType().attributes, elementType(permission.RoleArgs{})},
		"a user":  {userType().attributes, elementType(permission.UserArgs{})},
		"a token": {tokenType().attributes, elementType(sdkuser.TokenArgs{})}, "an ACL": {aclType().attributes, elementType(sdk.AclArgs{})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			for i := range test.sdk.NumField() {
				field := test.sdk.Field(i)
				optional := field.Type.Kind() == reflect.Pointer || field.Type.Kind() == reflect.Slice && !slices.Contains(
					lists, name+": "+field.Name,
				)
				assert.Equal(t, !optional, test.table[field.Tag.Get("pulumi")].required, field.Name)
			}
		})
	}
}

// TestTheProgramKnowsTheEffects holds the program's table of a VM's fields against the stand-in's, which knows nothing
// of it and is held against the provider.
func TestTheProgramKnowsTheEffects(t *testing.T) {
	t.Parallel()

	effects := Effects(typeVirtualMachine)

	for _, f := range vmdiff.Fields {
		want := map[vmdiff.Effect]Effect{vmdiff.InPlace: InPlace, vmdiff.Restart: Restart}[f.Effect]
		assert.Equal(t, want, effects[f.Property], f.Property)
	}
}

func TestCheckRefuses(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		change         object
		property, says string
	}{
		"an unknown property": {object{"memry": 1.0}, "memry", "stand-in does not know memry"},
		"an unknown property in a list": {
			object{"disks": []any{object{"interface": "scsi0", "siez": 1.0}}}, "disks[0].siez", "check its spelling",
		},
		"a VM without a host": {object{"nodeName": nil}, "nodeName", "Missing required argument"},
		"a disk without a place": {
			object{"disks": []any{object{"size": 10.0}}}, "disks[0].interface", "Missing required argument",
		},
		"an output": {object{"ipv4Addresses": []any{}}, "ipv4Addresses", "is an output"},
		"no name":   {object{"name": nil}, "name", "chooses no name"},
		"too little memory": {
			object{"memory": object{"dedicated": 16.0}}, "memory.dedicated", "range (64 - 268435456)",
		},
		"an unknown BIOS":   {object{"bios": "uefi"}, "bios", `expected one of ["ovmf" "seabios"]`},
		"a VM id below 100": {object{"vmId": 99.0}, "vmId", "range (100 - 2147483647)"},
		"a CD-ROM without a storage": {
			object{"cdrom": object{"fileId": "talos.iso"}}, "cdrom.fileId", "a file id such as",
		},
		"a timeout that is none": {object{"agent": object{"timeout": "soon"}}, "agent.timeout", "expected a duration"},
		"a MAC address that is none": {
			object{"networkDevices": []any{object{"macAddress": "02:00"}}},
			"networkDevices[0].macAddress",
			"expected a MAC address",
		},
		"a serial device that is none": {
			object{"serialDevices": []any{object{"device": "tty"}}}, "serialDevices[0].device", `expected "socket"`,
		},
		"a disk interface that is none": {
			object{"disks": []any{object{"interface": "nvme0"}}}, "disks[0].interface", "expected one of ide0..3",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			resp, err := Provider(testPoll).Check(
				t.Context(), p.CheckRequest{Urn: urn(typeVirtualMachine), Inputs: toProperties(with(node(), test.change))},
			)
			require.NoError(t, err)
			require.Len(t, resp.Failures, 1)
			assert.Equal(t, test.property, resp.Failures[0].Property)
			assert.Contains(t, resp.Failures[0].Reason, test.says)
		})
	}
}

func TestCheckFillsInThePublishedDefaults(t *testing.T) {
	t.Parallel()

	r := rig{t, Provider(testPoll)}
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

	s := Provider(testPoll)
	in, err := s.Check(t.Context(), p.CheckRequest{
		Urn: urn(typeVirtualMachine), Inputs: toProperties(with(node(), object{"vmId": nil, "description": unknown{}})),
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
