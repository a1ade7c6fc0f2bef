package stacks

import (
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/enginetest"
	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/tokens"
	"talos-proxmox/internal/vmdiff"
	"talos-proxmox/internal/vmlookup"
)

// TestARunRefusesAnotherMachineWithAVMIDOfTheStack: Proxmox has another VM under the VMID of a node of the state, which
// the plan keeps or not.
func TestARunRefusesAnotherMachineWithAVMIDOfTheStack(t *testing.T) {
	t.Parallel()

	const foreign = `, "name": "mail-server", "description": "mail", "vmgenid": "theirs", "smbios1": "uuid=theirs"`

	for name, preview := range map[string]bool{"preview": true, "up": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			o := stackOptionsOf(t, "test", gpuStack)
			o.Running, o.Preview = previousVMs(t, gpuStack), preview
			o.Nodes = []resource.PropertyMap{{
				"vmid": resource.NewProperty(4000.0), "creationId": resource.NewProperty("creation of 4000"),
			}}
			api := &fakeProxmox{config: foreign, moved: map[string]string{"4000": "pve1", "2000": ""}}

			r, err := enginetest.Run(o, Program{Transport: api}.Deploy)
			require.ErrorContains(t, err, "nothing was changed:\none-gpu-1: its VMID 4000 now belongs to VM 4000 mail-server on "+
				"host pve1, and no stack made it. Leave that machine alone: `talos-proxmox recover test`")
			assert.Empty(t, r.Names(tokens.VirtualMachine))
		})
	}
}

// TestTheGuardKnowsWhatWasCreated: the request that runs at `pulumi destroy` has the creation ids.
func TestTheGuardKnowsWhatWasCreated(t *testing.T) {
	t.Parallel()

	r := mustDeploy(t, stackOptionsOf(t, "test", gpuStack))
	request := r.ByType(tokens.LocalCommand)[tokens.MachineGuard].Inputs["stdin"].SecretValue().Element.StringValue()
	assert.Contains(t, request, `"name":"one-gpu-1","vmid":4000,"creationId":"creation of 4000","mac":"02:`)
	assert.Contains(t, request, `"proxmox":{"apiToken":`)
}

func TestRolledBackMachines(t *testing.T) {
	t.Parallel()

	const vmid = 2000

	for name, test := range map[string]struct {
		role          bool // control plane
		controlPlanes int
		others        int // that were rolled back
		creation      string
		warning, err  string
	}{
		"a control plane beside others": {
			role: true, controlPlanes: 3, creation: "creation of 2000",
			err: "and the cluster can lose data when it votes: replace it, so that it leaves and joins empty: " +
				"`pulumi up --replace '**::one-cp-1-vm'`; to proceed with its old data: TALOS_PROXMOX_FORCE=1 pulumi up",
		},
		"most control planes": {
			role: true, controlPlanes: 3, others: 1, creation: "creation of 2000",
			err: "one-cp-1, one-cp-2 have no newer data in common: restore etcd from a snapshot",
		},
		"the only control plane": {
			role: true, controlPlanes: 1, creation: "creation of 2000", warning: "as the only control plane, it takes cluster one back",
		},
		"a worker":               {controlPlanes: 3, creation: "creation of 2000", warning: "what it stored since then is gone"},
		"a machine created anew": {role: true, controlPlanes: 3, creation: "another"},
		"a machine of a state without creation ids": {role: true, controlPlanes: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var warnings string

			m := &machineLookup{
				known: map[int]ownership.Machine{}, planned: map[int]vmdiff.Machine{},
				verified: proxmoxapi.Verified{Own: map[int]proxmoxapi.Machine{}},
				warn: func(text string, _ *pulumi.LogArgs) error {
					warnings += text

					return nil
				},
			}
			found := proxmoxapi.Machine{Host: "pve1", Config: proxmoxapi.Config{"vmgenid": "new", "smbios1": "uuid=creation of 2000"}}

			for i := range test.controlPlanes {
				machine := "one-cp-" + string(rune('1'+i))
				m.known[vmid+i] = ownership.Machine{Name: machine, CreationID: "creation of 2000", Generation: "new"}
				m.planned[vmid+i] = vmdiff.Machine{Name: machine, Cluster: "one", ControlPlane: true}
				m.verified.Own[vmid+i] = found

				if i <= test.others {
					m.known[vmid+i] = ownership.Machine{Name: machine, CreationID: "creation of 2000", Generation: "old"}
				}
			}

			at := vmid
			if !test.role {
				at = 3000
				m.planned[at] = vmdiff.Machine{Name: "one-general-1", Cluster: "one"}
			}

			m.known[at] = ownership.Machine{Name: "one-cp-1", CreationID: test.creation, Generation: "old"}

			err := m.checkRollback(vmlookup.VM{Name: "one-cp-1", VMID: at}, found)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
			} else {
				require.NoError(t, err)
			}

			assert.Contains(t, warnings, test.warning)
			assert.Equal(t, test.warning == "", warnings == "")
		})
	}
}
