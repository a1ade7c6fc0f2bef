package operations

import (
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/urn"
	"github.com/pulumi/pulumi/sdk/v3/go/common/tokens"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
)

func TestFencing(t *testing.T) {
	t.Parallel()

	vm := &proxmoxapi.Listed{VMID: 3000, Status: "running"}

	for name, test := range map[string]struct {
		fencing fencing
		unknown bool // to the state
		want    string
	}{
		"a VM that Proxmox can delete":            {fencing: fencing{vm: vm, hostStatus: "online"}},
		"a VM whose host has not reported":        {fencing: fencing{vm: vm, hostStatus: "unknown"}},
		"a VM that is gone":                       {fencing: fencing{hostStatus: "online"}},
		"a VM that is gone with its host":         {fencing: fencing{}},
		"a VM that is gone, and not in the state": {fencing: fencing{}, unknown: true},
		"a VM that is gone, and its node answers": {
			fencing: fencing{hostStatus: "offline", answers: true},
			want: "Proxmox has no VM 3000, or shows none to the stack's credentials, and one-general-1 still answers: a machine with its identity " +
				"runs, on pve2 as far as the last run knows",
		},
		"a host that is offline": {
			fencing: fencing{vm: vm, hostStatus: "offline"},
			want: "one-general-1 (VM 3000) is on pve2, which is offline: Proxmox can neither stop nor delete it, and it may still run. If pve2 " +
				"comes back, wait; if it is gone for good: talos-proxmox replace prod --host pve2",
		},
		"a machine that is started elsewhere": {
			fencing: fencing{vm: vm, hostStatus: "offline", ha: "fence"},
			want:    "belongs to Proxmox' high availability, which has it in the state fence",
		},
		"a machine of a run that was killed": {
			fencing: fencing{vm: vm, hostStatus: "online"}, unknown: true,
			want: "the state does not have it, as after a run that was killed: talos-proxmox recover prod",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			f := test.fencing
			f.node, f.stack, f.vmid, f.host = "one-general-1", "prod", 3000, "pve2"

			if err := f.refusal(!test.unknown); test.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.want)
			}
		})
	}
}

func TestEtcdOfAReplacement(t *testing.T) {
	t.Parallel()

	yes, no := true, false
	members := func(healthy ...bool) (list []request.Member) {
		for i, name := range []string{"one-cp-1", "one-cp-2", "one-cp-3"}[:len(healthy)] {
			list = append(list, request.Member{Name: name, Healthy: healthy[i]})
		}

		return list
	}

	for name, test := range map[string]struct {
		status request.ClusterStatus
		worker bool
		want   string
	}{
		"a member that is dead":  {status: request.ClusterStatus{Quorum: &yes, Members: members(true, true, false)}},
		"a member that is well":  {status: request.ClusterStatus{Quorum: &yes, Members: members(true, true, true)}},
		"another member is dead": {status: request.ClusterStatus{Quorum: &yes, Members: members(true, false, true)}, want: "(healthy beside it: one-cp-1, of 3 members)"},
		"the only member":        {status: request.ClusterStatus{Quorum: &yes, Members: []request.Member{{Name: "one-cp-3", Healthy: true}}}, want: "(healthy beside it: none, of 1 members)"},
		"no majority":            {status: request.ClusterStatus{Quorum: &no}, want: "etcd of cluster one has no majority, or does not answer"},
		"no answer":              {status: request.ClusterStatus{}, worker: true, want: "etcd of cluster one has no majority, or does not answer"},
		"a worker": {
			status: request.ClusterStatus{Quorum: &yes, Members: members(true, true, false)}, worker: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			n := spec.Node{VM: spec.VM{Name: "one-cp-3"}, Role: spec.RoleControlPlane}
			if test.worker {
				n.Name, n.Role = "one-general-1", spec.RoleWorker
			}

			if err := etcdRefusal(n, spec.Cluster{Name: "one"}, test.status); test.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.want)
			}
		})
	}
}

func TestLostHost(t *testing.T) {
	t.Parallel()

	site := datacentre{hosts: map[string]string{"pve1": "online", "pve2": "offline"}}
	require.NoError(t, refuseHost("pve2", site, "prod"))
	require.NoError(t, refuseHost("pve9", site, "prod"), "it is no member of the cluster any more")
	require.ErrorContains(t, refuseHost("pve1", site, "prod"), "pve1 is online in Proxmox' cluster, so nothing of it is lost")

	site.machines = []proxmoxapi.Listed{{VMID: 3000, Name: "one-general-1", Host: "pve2"}, {VMID: 3001, Name: "one-general-2", Host: "pve1"}}
	require.ErrorContains(t, refuseHost("pve2", site, "prod"), "still has the configurations of one-general-1 (VM 3000) on pve2, and a VMID "+
		"is unique in it. Make sure that pve2 stays off for ever, then, as root on another host, `pvecm delnode pve2` and `rm -r "+
		"/etc/pve/nodes/pve2`")
}

func TestKeysThatNameAHost(t *testing.T) {
	t.Parallel()

	r := Replacer{Deployed{config: map[string]string{
		"talos-proxmox:hosts": `[{"name": "pve1"}, {"name": "pve2", "gpus": [{"name": "pve2"}]}]`,
		"talos-proxmox:clusters": `[{"name": "pve2", "controlPlane": {"hosts": ["pve1", "pve2"]},
			"workers": [{"name": "pve2", "nodes": {"2": {"host": "pve2"}, "3": {"host": "pve1"}}}]}]`,
		"talos-proxmox:sshUser": "pve2",
		"proxmoxve:endpoint":    `"pve2"`,
	}}}

	require.NoError(t, r.refuseNamedHost("pve3"))
	require.ErrorContains(t, r.refuseNamedHost("pve2"), "the stack file still has pve2: remove these, so that its machines are planned on other "+
		"hosts, then run the same again: clusters[0].controlPlane.hosts[1], clusters[0].workers[0].nodes.2.host, hosts[1].name")
}

// stateResource returns a resource of a state, a child of a component.
func stateResource(kind, name, component string, inputs map[string]any) apitype.ResourceV3 {
	parent := urn.New("prod", "talos-proxmox", "", tokens.Type(component), "parent")

	return apitype.ResourceV3{
		URN: urn.New("prod", "talos-proxmox", tokens.Type(component), tokens.Type(kind), name), Type: tokens.Type(kind),
		Custom: true, Parent: parent, Inputs: inputs, Outputs: inputs,
	}
}

// TestInterruptedReplacement: the VM that a replacement was killed after creating is not replaced again.
func TestInterruptedReplacement(t *testing.T) {
	t.Parallel()

	first, second, third := time.Unix(1, 0), time.Unix(2, 0), time.Unix(3, 0)
	state := func(createdAt time.Time, left, deleted bool) stateMachine {
		vm := stateResource("proxmoxve:VM/virtualMachine:VirtualMachine", "one-general-1-vm", "talos-proxmox:node:TalosNode", map[string]any{
			"vmId": 3000, "nodeName": "pve2",
		})
		vm.Created, vm.PendingReplacement = &createdAt, deleted
		leave := stateResource("command:local:Command", "one-general-1-leave", "talos-proxmox:cluster:TalosCluster", nil)
		leave.Created, leave.PendingReplacement = &second, left

		return newMachineState([]apitype.ResourceV3{vm, leave}).machines[3000]
	}

	whole := state(first, false, false)
	assert.Equal(t, []bool{true, false, false}, []bool{whole.exists, whole.hasLeft, whole.isNew})
	assert.Equal(t, "one-general-1", whole.name())
	assert.Equal(t, "pve2", whole.Host)

	left := state(first, true, false)
	assert.Equal(t, []bool{true, true, false}, []bool{left.exists, left.hasLeft, left.isNew})

	assert.False(t, state(first, true, true).exists)

	between := newMachineState([]apitype.ResourceV3{func() apitype.ResourceV3 {
		leave := stateResource("command:local:Command", "one-general-1-leave", "talos-proxmox:cluster:TalosCluster", nil)
		leave.PendingReplacement = true

		return leave
	}()})
	assert.Equal(t, []string{"one-general-1"}, between.interrupted(), "the refresh of an interrupted run has forgotten the VM")

	anew := state(third, true, false)
	assert.Equal(t, []bool{true, true, true}, []bool{anew.exists, anew.hasLeft, anew.isNew})
}

// TestResourcesOfAHost: only what is the host's own, whatever the names of other things are.
func TestResourcesOfAHost(t *testing.T) {
	t.Parallel()

	template := stateResource("talos-proxmox:template:GoldenTemplate", "talos-pve2", "pulumi:pulumi:Stack", map[string]any{"host": "pve2"})
	template.Custom = false
	build := stateResource("command:remote:Command", "talos-pve2-build", "talos-proxmox:template:GoldenTemplate", nil)
	build.Parent = template.URN

	other := stateResource("talos-proxmox:template:GoldenTemplate", "talos-pve20", "pulumi:pulumi:Stack", map[string]any{"host": "pve20"})
	other.Custom = false
	otherBuild := stateResource("command:remote:Command", "talos-pve20-build", "talos-proxmox:template:GoldenTemplate", nil)
	otherBuild.Parent = other.URN

	preparation := stateResource("talos-proxmox:host:ProxmoxHostPrep", "pve2", "pulumi:pulumi:Stack", nil)
	preparation.Custom = false
	apply := stateResource("command:remote:Command", "pve2-apply", "talos-proxmox:host:ProxmoxHostPrep", nil)
	apply.Parent = preparation.URN

	const image = "talos-proxmox:image:TalosImage"

	state := newMachineState([]apitype.ResourceV3{
		template, build, other, otherBuild, preparation, apply,
		stateResource("proxmoxve:Download/file:File", "talos.img-pve2-local", image, map[string]any{"nodeName": "pve2"}),
		stateResource("proxmoxve:Download/file:File", "talos.img-pve20-local", image, map[string]any{"nodeName": "pve20"}),
		stateResource("command:local:Command", "talos.qcow2-pve2-local", image, map[string]any{"stdin": `{"host": "pve2"}`}),
		stateResource("command:local:Command", "talos.qcow2-pve1-local", image, map[string]any{"stdin": `{"host": "pve1"}`}),
		stateResource("command:local:Command", "pve2-1-volume-data", "talos-proxmox:node:TalosNode", map[string]any{"stdin": `{"host": "pve2"}`}),
		stateResource("proxmoxve:VM/virtualMachine:VirtualMachine", "pve2-1-vm", "talos-proxmox:node:TalosNode", map[string]any{"nodeName": "pve2"}),
	})

	var names []string
	for _, own := range state.ofHost("pve2") {
		names = append(names, own.URN.Name())
	}

	assert.ElementsMatch(t, []string{"talos-pve2-build", "pve2-apply", "talos.img-pve2-local", "talos.qcow2-pve2-local"}, names)
}
