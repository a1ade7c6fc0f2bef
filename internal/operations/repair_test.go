package operations

import (
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
)

// TestDeadWorkers: who counts as dead, and who is left to a later run or to a person.
func TestDeadWorkers(t *testing.T) {
	t.Parallel()

	now := time.Unix(100_000, 0)
	ago := func(minutes int) time.Time { return now.Add(-time.Duration(minutes) * time.Minute) }

	vm := func(createdAt time.Time) apitype.ResourceV3 {
		resource := stateResource("proxmoxve:VM/virtualMachine:VirtualMachine", "one-general-1-vm", "talos-proxmox:node:TalosNode", nil)
		resource.Created = &createdAt

		return resource
	}
	whole := stateMachine{resource: vm(ago(500)), exists: true}

	for name, test := range map[string]struct {
		status  request.NodeStatus
		machine *stateMachine
		skip    bool
		left    bool
		action  RepairAction
		why     string
	}{
		"a node that is well":            {status: request.NodeStatus{Ready: "yes", Answers: true, ReadySince: ago(60)}},
		"a node that waits for its CNI":  {status: request.NodeStatus{Ready: "no CNI", ReadySince: ago(60)}},
		"a node that the program skips":  {status: request.NodeStatus{Ready: "no", ReadySince: ago(60)}, skip: true},
		"a machine that was not created": {machine: &stateMachine{}},
		"a node that is dead": {
			status: request.NodeStatus{Ready: "no", ReadySince: ago(10)}, action: RepairReplace,
			why: "it has not been Ready for 10m0s, and its machine does not answer",
		},
		"a node that is not dead long enough": {
			status: request.NodeStatus{Ready: "no", ReadySince: ago(9)}, action: RepairWait,
			why: "it has not been Ready for 9m0s, and may be replaced after 10m0s",
		},
		"a node that somebody works at": {
			status: request.NodeStatus{Ready: "no", ReadySince: ago(20), Cordoned: true}, action: RepairWait, why: "is cordoned",
		},
		"a machine that answers": {
			status: request.NodeStatus{Ready: "no", ReadySince: ago(20), Answers: true}, action: RepairRefuse,
			why: "it has not been Ready for 20m0s, but Talos answers on its machine, which is not dead",
		},
		"a node that Kubernetes does not have": {action: RepairReplace, why: "it has not been Ready for 8h20m0s"},
		"a machine that has just been created": {
			machine: &stateMachine{resource: vm(ago(3)), exists: true}, action: RepairWait,
			why: "it has not been Ready for 3m0s",
		},
		"a replacement that was interrupted": {
			machine: &stateMachine{resource: vm(ago(3)), exists: true}, left: true, action: RepairReplace, why: wasInterrupted,
		},
		"a replacement that was interrupted after the deletion": {
			machine: &stateMachine{}, left: true, action: RepairReplace, why: wasInterrupted,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			r := Repairer{Replacer: Replacer{Deployed{Stack: "prod"}}, Now: func() time.Time { return now }}
			n := spec.Node{VM: spec.VM{Name: "one-general-1"}, Repair: &spec.Repair{After: 10 * time.Minute}, Skip: test.skip}

			m := whole
			if test.machine != nil {
				m = *test.machine
			}

			got := r.judge(Repair{Node: n.Name}, n, test.status, m, test.left)
			assert.Equal(t, test.action, got.Action)
			assert.Contains(t, got.Why, test.why)

			if test.action == RepairRefuse {
				assert.Equal(t, "talos-proxmox replace prod one-general-1", got.Command)
			}
		})
	}
}

// TestRepairLeavesToHighAvailability what Proxmox may start itself.
func TestRepairLeavesToHighAvailability(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		state, vm, host string
		unknown         bool
		want            RepairAction
	}{
		"a machine without it":            {vm: "stopped", host: "online"},
		"a machine that runs and hangs":   {state: "started", vm: "running", host: "online"},
		"a machine that it gave up":       {state: "error", vm: "stopped", host: "online"},
		"a machine that it starts":        {state: "started", vm: "stopped", host: "online", want: RepairWait},
		"a host that is fenced":           {state: "fence", vm: "unknown", host: "offline", want: RepairWait},
		"a machine that is recovered":     {state: "recovery", vm: "unknown", host: "offline", want: RepairWait},
		"a machine that migrates":         {state: "migrate", vm: "running", host: "online", want: RepairWait},
		"a machine that somebody stopped": {state: "stopped", vm: "stopped", host: "online", want: RepairRefuse},
		"a machine that is ignored":       {state: "ignored", vm: "running", host: "online", want: RepairRefuse},
		"nobody tells":                    {vm: "stopped", host: "online", unknown: true, want: RepairRefuse},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			f := fencing{vm: &proxmoxapi.Listed{Status: test.vm}, hostStatus: test.host, ha: test.state}
			action, why := f.highAvailability(test.unknown)
			assert.Equal(t, test.want, action)
			assert.Equal(t, action != "", why != "")
		})
	}
}

// TestAFaultOfTheNetworkIsNotRepaired: several machines that run and are silent at once are left to a person.
func TestAFaultOfTheNetworkIsNotRepaired(t *testing.T) {
	t.Parallel()

	c := spec.Cluster{Name: "one"}
	status := request.ClusterStatus{}

	for _, name := range []string{"one-general-1", "one-general-2", "one-general-3"} {
		c.Workers = append(c.Workers, spec.Node{VM: spec.VM{Name: name, VMID: 3000}})
		status.Nodes = append(status.Nodes, request.NodeStatus{Name: name, Ready: "no"})
	}

	e := evidence{status: status, site: datacentre{
		hosts:    map[string]string{"pve1": proxmoxapi.HostOnline},
		machines: []proxmoxapi.Listed{{VMID: 3000, Name: "one-general-1", Host: "pve1", Status: "running"}},
	}}
	r := Repairer{Replacer: Replacer{Deployed{Stack: "prod"}}}

	repair, err := r.plan(t.Context(), Repair{Node: "one-general-1", Why: "it is dead"}, c.Workers[0], c, e)
	require.NoError(t, err)
	assert.Equal(t, RepairRefuse, repair.Action)
	assert.Equal(t, "it is dead; but its VM runs, and 3 of the 3 workers of cluster one are silent at once, as after a fault of the "+
		"network, which no replacement mends", repair.Why)
	assert.Equal(t, "talos-proxmox replace prod one-general-1", repair.Command)
}

// TestVolumesOfPods: those on a disk that is deleted with the machine are lost.
func TestVolumesOfPods(t *testing.T) {
	t.Parallel()

	user := func(name, match string) string {
		return `{apiVersion: v1alpha1, kind: UserVolumeConfig, name: ` + name + `, provisioning: {diskSelector: {match: "` + match + `"}}}`
	}
	n := spec.Node{VM: spec.VM{
		Name: "one-general-1", DiskGiB: 40, ExtraDisks: []spec.Disk{{SizeGiB: 100, Volume: "data"}, {SizeGiB: 200}},
	}}
	n.Patches = []string{
		user("kept", "!system_disk && disk.size == 100u * GiB"), user("lost", "!system_disk && disk.size == 200u * GiB"),
		user("both", "!system_disk"), user("system", "system_disk"), user("unknown", "disk.transport == 'nvme'"),
		`{apiVersion: v1alpha1, kind: UserVolumeConfig, name: folder, volumeType: directory}`,
	}

	var (
		volumes []request.LocalVolume
		lost    = []string{"both", "folder", "hostPath", "lost", "none", "system", "unknown"}
	)

	for name, path := range map[string]string{
		"kept": "/var/mnt/kept/pvc-1", "lost": "/var/mnt/lost/pvc-1", "both": "/var/mnt/both", "system": "/var/mnt/system/pvc-1",
		"unknown": "/var/mnt/unknown", "folder": "/var/mnt/folder/pvc-1", "none": "/var/mnt/none", "hostPath": "/var/local/db",
		"disk": "/dev/disk/by-id/x",
	} {
		volumes = append(volumes, request.LocalVolume{Node: n.Name, Name: name, Claim: "default/" + name, Path: path})
	}

	volumes = append(volumes, request.LocalVolume{Node: "one-general-2", Name: "elsewhere", Path: "/var/local/db"})

	var plan Replacement
	require.NoError(t, plan.addClaims(n, spec.Cluster{}, request.ClusterStatus{LocalVolumes: volumes}))

	var want []string
	for _, name := range lost {
		want = append(want, "one-general-1/"+name)
	}

	assert.ElementsMatch(t, want, plan.Losses)
	assert.Contains(t, plan.Lines, "  the volume folder of claim default/folder is deleted with it: /var/mnt/folder/pvc-1")

	require.ErrorContains(t, plan.addClaims(n, spec.Cluster{}, request.ClusterStatus{VolumesUnknown: "timeout"}),
		"nothing is replaced while it is unknown which volumes of pods are on one-general-1: timeout")
}

func TestRepairInALine(t *testing.T) {
	t.Parallel()

	r := Repairer{Replacer: Replacer{Deployed{Stack: "prod"}}}
	repair := Repair{Cluster: "one", Pool: "general", Node: "one-general-1", Action: RepairReplace, Why: "it is dead"}
	assert.Equal(t, "one-general-1: replace: it is dead", repair.String())
	assert.Equal(t, "one-general-1: refuse: it is dead; but these volumes would be lost with it, and its pool has no repair.loseVolumes: "+
		"one-general-1/local, one-general-1/pvc. A person can: talos-proxmox replace prod one-general-1 --lose-volumes "+
		"one-general-1/local,one-general-1/pvc", r.RefuseLosses(repair, []string{"one-general-1/local", "one-general-1/pvc"}).String())
	assert.Equal(t, "cluster one: refuse: no API. A person can: talos-proxmox status prod one",
		Repair{Cluster: "one"}.refuse("talos-proxmox status prod one", "no API").String())
}
