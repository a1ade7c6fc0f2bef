package proxmoxve

import (
	"strings"
	"testing"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// TestChecks has one mistake per case, and expects the published provider's message for that property.
func TestChecks(t *testing.T) {
	t.Parallel()

	const missing = "Missing required argument"

	entry := gpuMapping()["maps"].([]any)[0].(object)
	machine := func(changes object) object { return with(nodeInputs(), changes) }
	image := func(changes object) object { return with(talosImage(), changes) }
	device := func(changes object) object { return with(gpuMapping(), object{"maps": []any{with(entry, changes)}}) }

	for name, test := range map[string]struct {
		token           string
		in              object
		property, words string // no property = valid
	}{
		"a VM's unknown property": {
			typeVirtualMachine, machine(object{"memry": 1.0}), "memry", "stand-in does not know memry",
		},
		"a VM without a host": {typeVirtualMachine, machine(object{"nodeName": nil}), "nodeName", missing},
		"a disk without a place": {
			typeVirtualMachine, machine(object{"disks": []any{object{"size": 10.0}}}), "disks[0].interface", missing,
		},
		"a VM's output": {
			typeVirtualMachine, machine(object{"ipv4Addresses": []any{}}), "ipv4Addresses", "is an output",
		},
		"too little memory": {
			typeVirtualMachine, machine(object{"memory": object{"dedicated": 16.0}}), "memory.dedicated",
			"range (64 - 268435456)",
		},
		"an unknown BIOS": {
			typeVirtualMachine, machine(object{"bios": "uefi"}), "bios", `expected one of ["ovmf" "seabios"]`,
		},
		"a VM id below 100": {typeVirtualMachine, machine(object{"vmId": 99.0}), "vmId", "range (100 - 2147483647)"},
		"a CD-ROM without a storage": {
			typeVirtualMachine, machine(object{"cdrom": object{"fileId": "talos.iso"}}), "cdrom.fileId", "a file id such as",
		},
		"a timeout that is none": {
			typeVirtualMachine, machine(object{"agent": object{"timeout": "soon"}}), "agent.timeout", "expected a duration",
		},
		"a MAC address that is none": {
			typeVirtualMachine, machine(object{"networkDevices": []any{object{"macAddress": "02:00"}}}),
			"networkDevices[0].macAddress", "expected a MAC address",
		},
		"a serial device that is none": {
			typeVirtualMachine, machine(object{"serialDevices": []any{object{"device": "tty"}}}), "serialDevices[0].device",
			`expected "socket"`,
		},
		"a disk interface that is none": {
			typeVirtualMachine, machine(object{"disks": []any{object{"interface": "nvme0"}}}), "disks[0].interface",
			"expected one of ide0..3",
		},
		"a whole GPU of a host": {
			typeVirtualMachine, machine(object{"hostpcis": []any{object{"device": "hostpci0", "id": "0000:01:00"}}}), "", "",
		},

		"a checksum without its algorithm": {
			typeDownloadFile, image(object{"checksumAlgorithm": nil}), "checksum", "must be specified",
		},
		"an algorithm without a checksum": {
			typeDownloadFile, image(object{"checksum": nil}), "checksumAlgorithm", "must be specified",
		},
		"xz": {
			typeDownloadFile, image(object{"decompressionAlgorithm": "xz"}), "decompressionAlgorithm", "expected one of",
		},
		"import content": {typeDownloadFile, image(object{"contentType": "import"}), "contentType", "expected one of"},
		"an address that is none": {
			typeDownloadFile, image(object{"url": "ftp://factory.test"}), "url", "Must match http url regex",
		},

		"a mapping without a device": {
			typeMapping, with(gpuMapping(), object{"maps": []any{}}), "maps", "at least 1 elements",
		},
		"a path of several": {
			typeMapping, device(object{"path": "0000:01:00.0;0000:01:00.1"}), "maps[0].path", "not a valid Linux device path",
		},
		"a path without a domain": {
			typeMapping, device(object{"path": "01:00.0"}), "maps[0].path", "not a valid Linux device path",
		},
		"an id with 0x": {
			typeMapping, device(object{"id": "0x10de:0x27b0"}), "maps[0].id", "valid hardware mapping device ID",
		},
		"a subsystem without card": {
			typeMapping, device(object{"subsystemId": "10de"}), "maps[0].subsystemId", "valid hardware mapping device ID",
		},
		"a USB device at no port": {
			typeUSBMapping,
			object{"name": "zigbee", "maps": []any{object{"id": "10c4:ea60", "node": "pve1", "path": "0000:01:00"}}},
			"maps[0].path",
			"not a valid Linux device path",
		},
		"a device of no host":    {typeMapping, device(object{"node": nil}), "maps[0].node", missing},
		"an empty comment":       {typeMapping, with(gpuMapping(), object{"comment": ""}), "comment", "at least 1"},
		"a comment with a space": {typeMapping, with(gpuMapping(), object{"comment": "gpu "}), "comment", "whitespace"},

		"a role without privileges": {typeRole, object{"roleId": "r"}, "privileges", missing},
		"a user's rule without a role": {
			typeUser, object{"userId": "a@pve", "acls": []any{object{"path": "/"}}}, "acls[0].roleId", missing,
		},
		"a token's name": {
			typeToken, object{"userId": "a@pve", "tokenName": "1"}, "tokenName", "must be a valid token identifier, got: 1",
		},
		"a token's value": {
			typeToken, object{"userId": "a@pve", "tokenName": "ab", "value": "x"}, "value", "is an output",
		},
		"a rule of two": {
			typeACL, with(readerOn("/"), object{"userId": "a@pve", "tokenId": "a@pve!b"}), "tokenId",
			"These attributes cannot be configured together: [group_id,token_id,user_id]",
		},
		"a rule of one and perhaps two": {
			typeACL, with(readerOn("/"), object{"userId": "a@pve", "tokenId": unknown{}}), "", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			resp, err := Provider(testPoll, nil).Check(
				t.Context(), p.CheckRequest{Urn: urn(test.token), Inputs: toProperties(test.in)},
			)
			require.NoError(t, err)

			if test.property == "" {
				assert.Empty(t, resp.Failures)

				return
			}

			require.Len(t, resp.Failures, 1)
			assert.Equal(t, test.property, resp.Failures[0].Property)
			assert.Contains(t, resp.Failures[0].Reason, test.words)
		})
	}
}

// TestCreationsFail has errors with the published provider's wording that no engine test covers.
func TestCreationsFail(t *testing.T) {
	t.Parallel()

	image := func(changes object) object { return with(talosImage(), changes) }

	for name, test := range map[string]struct {
		token string
		in    object
		want  string
		keeps bool // the resource exists by then
	}{
		"a VM without an id": {typeVirtualMachine, with(nodeInputs(), object{"vmId": nil}), "chooses no VMID", false},
		"a disk smaller than the template's": {
			typeVirtualMachine, with(nodeInputs(), object{"disks": []any{object{"interface": "scsi0", "size": 1.0}}}),
			"is lower than current size", true,
		},
		"a template of another host": {
			typeVirtualMachine, with(nodeInputs(), object{"clone": object{"vmId": 900.0, "nodeName": "pve2"}}),
			"templates of the machine's own host only, not of pve2", false,
		},
		"an EFI disk of another type than before": {
			typeVirtualMachine, with(nodeInputs(), object{"efiDisk": object{"datastoreId": "local-lvm", "type": "2m"}}),
			"resizing of efidisks is not supported", true,
		},

		"a file that is there": {
			typeDownloadFile, image(object{"fileName": "base.img", "checksum": nil, "checksumAlgorithm": nil}),
			"file already exists in the datastore", false,
		},
		"a file of another checksum": {
			typeDownloadFile, image(object{"checksum": strings.Repeat("0", len(labImageSum))}), "checksum mismatch", false,
		},

		"a mapping that is there": {
			typeMapping, with(gpuMapping(), object{"name": "there"}),
			`Could not create PCI hardware mapping "there".: creating hardware mapping "there": ` +
				`received an HTTP 500 response - Reason: create hardware mapping failed: pci ID 'there' already defined`, false,
		},
		"a role that is there": {
			typeRole, reader(), "1 error occurred:\n\t* error creating role: received an HTTP 500 response - Reason: " +
				"create role failed: role 'Reader' already exists\n\n", false,
		},
		"a privilege of none": {
			typeRole, object{"roleId": "r", "privileges": []any{"VM.Fly"}}, "error creating role: received an HTTP 400 response - " +
				"Reason: Parameter verification failed. (privs: invalid format - invalid privilege 'VM.Fly')", false,
		},
		"a user who is there": {
			typeUser, object{"userId": "ci@pve"}, "error creating user: received an HTTP 500 response - Reason: " +
				"create user failed: user 'ci@pve' already exists", false,
		},
		"a user with half a rule": {
			typeUser,
			object{"userId": "ann@pve", "acls": []any{object{"path": "/", "roleId": "Nope"}}},
			"failed to update access control list: the requested resource does not exist", true,
		},
		"a token that is there": {
			typeToken, object{"userId": "ci@pve", "tokenName": "one"}, "Error creating user token: error creating user token: " +
				"received an HTTP 400 response - Reason: Parameter verification failed. (tokenid: Token already exists.)", false,
		},
		"a token of nobody": {
			typeToken, object{"userId": "ann@pve", "tokenName": "one"}, "Reason: no such user ('ann@pve')", false,
		},
		"a rule of nobody": {
			typeACL, readerOn("/vms"), "Unable to create ACL: API call failed: failed to update access control list: " +
				"received an HTTP 400 response - Reason: Parameter verification failed. (groups: either", false,
		},
		"a rule of a group of none": {
			typeACL, with(readerOn("/vms"), object{"groupId": "ops"}), "Unable to create ACL: API call failed: " +
				"failed to update access control list: the requested resource does not exist", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			dc, r := newAccounts(t)
			addTemplate(t, dc)
			dc.Put(datacentre.PCIMappings, "there", nil)

			created, err := r.create(test.token, test.in)
			require.ErrorContains(t, err, test.want)
			assert.Equal(t, test.keeps, created.ID != "")
			assert.Equal(t, test.keeps, created.PartialState != nil)
		})
	}
}

// TestDiff has changes that no engine test covers: those change each property by itself.
func TestDiff(t *testing.T) {
	t.Parallel()

	dc, r := newAccounts(t)
	addTemplate(t, dc)

	entries := gpuMapping()["maps"].([]any)
	nothing := map[string]p.DiffKind{}
	role, user := with(reader(), object{"roleId": "New"}), object{"userId": "ann@pve", "acls": []any{
		readerOn("/vms"), readerOn("/nodes"),
	}}
	inputs, states := map[string]object{
		typeVirtualMachine: nodeInputs(), typeDownloadFile: talosImage(), typeMapping: gpuMapping(), typeRole: role,
		typeUser: user,
	}, map[string]p.CreateResponse{}

	for token, in := range inputs {
		created, err := r.create(token, in)
		require.NoError(t, err)

		states[token] = created
	}

	for name, test := range map[string]struct {
		token  string
		change object
		want   map[string]p.DiffKind
	}{
		"the order of tags does not count": {typeVirtualMachine, object{"tags": []any{"dev", "talos"}}, nothing},
		"no template any more replaces": {
			typeVirtualMachine, object{"clone": nil}, map[string]p.DiffKind{"clone": p.DeleteReplace},
		},
		"another host with migrate migrates": {
			typeVirtualMachine,
			object{"nodeName": "pve2", "migrate": true},
			map[string]p.DiffKind{"nodeName": p.Update, "migrate": p.Update},
		},

		"another address replaces": {
			typeDownloadFile, object{"url": "https://factory.test/other"}, map[string]p.DiffKind{"url": p.UpdateReplace},
		},
		"another file's name replaces": {
			typeDownloadFile, object{"fileName": "other.img"}, map[string]p.DiffKind{"fileName": p.UpdateReplace},
		},
		"another checksum replaces": {
			typeDownloadFile, object{"checksum": "abd"}, map[string]p.DiffKind{"checksum": p.UpdateReplace},
		},
		"another decompression is a note": {
			typeDownloadFile, object{"decompressionAlgorithm": "gz"}, map[string]p.DiffKind{"decompressionAlgorithm": p.Add},
		},
		"no name keeps the one there is": {typeDownloadFile, object{"fileName": nil}, nothing},
		"another patience changes nothing": {
			typeDownloadFile, object{"uploadTimeout": 60.0}, map[string]p.DiffKind{"uploadTimeout": p.Update},
		},

		"another order of devices is none": {typeMapping, object{"maps": []any{entries[1], entries[0]}}, nothing},
		"another comment is written": {
			typeMapping, object{"comment": "spare"}, map[string]p.DiffKind{"comment": p.Update},
		},
		"a device less is written": {
			typeMapping, object{"maps": entries[:1]}, map[string]p.DiffKind{"maps[1]": p.Delete},
		},
		"group 0 is not no group": {
			typeMapping,
			object{"maps": []any{with(entries[0].(object), object{"iommuGroup": nil}), entries[1]}},
			map[string]p.DiffKind{"maps[0].iommuGroup": p.Delete},
		},
		"a mapping's new name replaces nothing": {
			typeMapping, object{"name": "card"}, map[string]p.DiffKind{"name": p.Update},
		},
		"mediated devices are a property": {
			typeMapping, object{"mediatedDevices": true}, map[string]p.DiffKind{"mediatedDevices": p.Update},
		},

		"privileges have no order": {typeRole, object{"privileges": []any{"VM.Audit", "Datastore.Audit"}}, nothing},
		"rules have no order": {
			typeUser, object{"acls": []any{readerOn("/nodes"), readerOn("/vms")}}, nothing,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			in := with(inputs[test.token], test.change)
			assert.Equal(t, test.want, r.diff(test.token, in, states[test.token].Properties, ignoredSpeed))
		})
	}
}
