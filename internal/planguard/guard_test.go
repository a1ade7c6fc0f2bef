package planguard_test

import (
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/urn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/planguard"
	"talos-proxmox/internal/tokens"
)

// edit changes a recorded preview, so that one recording serves several cases.
type edit func(p *planguard.Preview)

// readRecording reads a preview of the real engine, written by lab/engine/guard_test.go.
func readRecording(t *testing.T, name string) *planguard.Preview {
	t.Helper()

	file, err := os.Open(filepath.Join("testdata", name+".json.gz"))
	require.NoError(t, err)

	defer file.Close()

	content, err := gzip.NewReader(file)
	require.NoError(t, err)
	p, err := planguard.Parse(content)
	require.NoError(t, err)

	return p
}

// step changes the step of the named resource.
func step(name string, change func(s *planguard.Step)) edit {
	return func(p *planguard.Preview) {
		i := slices.IndexFunc(p.Steps, func(s planguard.Step) bool {
			return s.Name() == name && s.URN.Type() != tokens.TalosNode
		})
		change(&p.Steps[i])
	}
}

func operation(name string, o planguard.Operation) edit {
	return step(name, func(s *planguard.Step) { s.Operation = o })
}

func input(name, key string, value any) edit {
	return step(name, func(s *planguard.Step) {
		for _, state := range []*planguard.State{s.Old, s.New} {
			if state != nil {
				state.Inputs[key] = value
			}
		}
	})
}

// leaving gives the state exactly these nodes' commands for leaving their cluster.
func leaving(nodes ...string) edit {
	return func(p *planguard.Preview) {
		p.Steps = slices.DeleteFunc(p.Steps, func(s planguard.Step) bool { return strings.HasSuffix(s.Name(), "-leave") })

		for _, n := range nodes {
			p.Steps = append(p.Steps, planguard.Step{
				URN:       urn.New("lab", "talos-proxmox", "", "command:local:Command", n+"-leave"),
				Operation: planguard.Delete, Old: &planguard.State{},
			})
		}
	}
}

// warned adds warnings of the program.
func warned(texts ...string) edit {
	return func(p *planguard.Preview) {
		for _, text := range texts {
			p.Warnings = append(p.Warnings, planguard.Message{Text: text})
		}
	}
}

// setGone marks machines that a refresh did not find and the plan recreates.
func setGone(names ...string) edit {
	return func(p *planguard.Preview) {
		for _, name := range names {
			step(name, func(s *planguard.Step) { s.Operation, s.Old, s.Gone = planguard.Create, nil, true })(p)
		}
	}
}

// removeMachines removes machines from the stack.
func removeMachines(names ...string) edit {
	return func(p *planguard.Preview) {
		p.Steps = slices.DeleteFunc(p.Steps, func(s planguard.Step) bool { return slices.Contains(names, s.Name()) })
	}
}

const (
	isControlPlane = "it is a control plane of cluster one and a member of its etcd"
	noLeaveCommand = ", and nothing has it leave: the state is of an earlier version of this program; first run `up` once without this change"
	member         = isControlPlane + noLeaveCommand
	two            = "the plan replaces 2 control planes of cluster one at once (one-cp-2-vm, one-cp-3-vm), which can lose etcd's majority: replace one in each run"
	erased         = "data disk scsi1 (50 GiB on local-lvm) is deleted with all that is on it"
	missing        = "the refresh found %d of the stack's %d machines, and `up` would recreate %s, empty: " +
		"is this the stack's Proxmox, and may its token see them (VM.Audit)"
	clones   = "linked clones live on its disk: "
	onlyCopy = ", and has the only copy of its data, for which the other control planes wait: restore etcd before " +
		"(docs/recovery.md#the-majority-of-etcd-is-lost)"
)

func TestJudge(t *testing.T) {
	t.Parallel()

	both := []string{"delete one-cp-2-vm: " + member, "delete one-cp-3-vm: " + member}
	// No run removes a disk from a machine, so `up` would refuse.
	const refused = "`up` would end with an error: disk scsi1 (50 GiB on local-lvm) of %s would have to be removed, and no run removes a disk from a machine; " +
		"set it again, or recreate the machine: for a worker, lower count and raise it again"

	dataDisks := []string{
		"update one-general-1-vm: " + fmt.Sprintf(refused, "one-general-1"),
		"update one-general-2-vm: " + fmt.Sprintf(refused, "one-general-2"),
	}

	template := []string{
		"replace talos-pve1-build: " + clones + "one-cp-1-vm, one-cp-3-vm, one-general-1-vm",
		"replace talos-pve2-build: " + clones + "one-cp-2-vm, one-general-2-vm",
	}
	for name, test := range map[string]struct {
		preview  string
		edits    []edit
		approved []string
		findings []string
		unused   []string
	}{
		"two control planes go that nothing has leave": {
			preview: "fewer-control-planes", edits: []edit{leaving()}, findings: both,
		},
		"two control planes go whose VMIDs are blinded": {
			preview: "fewer-control-planes", findings: both,
			edits: []edit{leaving(), input("one-cp-2-vm", "vmId", "[secret]"), input("one-cp-3-vm", "vmId", "[secret]")},
		},
		"two control planes leave and go": {preview: "fewer-control-planes", edits: []edit{leaving("one-cp-2", "one-cp-3")}},
		"two control planes go that an interrupted run has taken out": {
			preview: "fewer-control-planes", edits: []edit{leaving(), warned(
				"one-cp-2 has left cluster one before: its VM is deleted, with its data",
				"one-cp-3 has left cluster one before: its VM is deleted, with its data",
			)},
		},
		"another one than that which an interrupted run has taken out": {
			preview: "fewer-control-planes", edits: []edit{leaving(), warned(
				"one-cp-2 has left cluster one-b before: its VM is deleted, with its data", "one-cp-30 has left cluster one before: x",
			)}, findings: both,
		},
		"the only copy of etcd's data goes": {
			preview: "fewer-control-planes", edits: []edit{
				leaving("one-cp-2", "one-cp-3"),
				warned("one-cp-2 has the only copy of the etcd data of cluster one: one-cp-1, one-cp-3 have none and wait. Restore it"),
			},
			findings: []string{"delete one-cp-2-vm: " + isControlPlane + onlyCopy},
		},
		"the only copy of etcd's data is replaced": {
			preview: "fewer-control-planes", edits: []edit{
				leaving("one-cp-2", "one-cp-3"), operation("one-cp-2-vm", planguard.Replace), operation("one-cp-3-vm", planguard.Same),
				warned("one-cp-2 has the only copy of the etcd data of cluster one: one-cp-1, one-cp-3 have none and wait. Restore it"),
			},
			findings: []string{"replace one-cp-2-vm: " + isControlPlane + onlyCopy},
		},
		"the cluster goes with them": {
			preview: "fewer-control-planes",
			edits:   []edit{leaving("one-cp-2", "one-cp-3"), operation("one-secrets", planguard.Delete)},
			findings: []string{
				"delete one-cp-2-vm: " + isControlPlane, "delete one-cp-3-vm: " + isControlPlane,
				"delete one-secrets: the cluster's certificate authorities and tokens are gone with it; no node and no client of the cluster can be reached any more",
			},
		},
		"a refresh does not find two machines": {
			preview: "fewer-control-planes", edits: []edit{setGone("one-general-1-vm", "one-general-2-vm"), leaving("one-cp-2", "one-cp-3")},
			findings: []string{
				"create one-general-1-vm: " + fmt.Sprintf(missing, 3, 5, "one-general-1-vm, one-general-2-vm"),
				"create one-general-2-vm: " + fmt.Sprintf(missing, 3, 5, "one-general-1-vm, one-general-2-vm"),
			},
		},
		"a refresh does not find one machine": {
			preview: "fewer-control-planes", edits: []edit{setGone("one-general-1-vm"), leaving("one-cp-2", "one-cp-3")},
		},
		"a refresh finds no machine, and all are named": {
			preview: "more-cores", edits: []edit{setGone("one-cp-1-vm", "one-cp-2-vm", "one-cp-3-vm", "one-general-1-vm", "one-general-2-vm")},
			approved: []string{"one-cp-1", "one-cp-2", "one-cp-3", "one-general-1", "one-general-2"},
		},
		"a refresh does not find the only machine": {
			preview: "more-cores", edits: []edit{setGone("one-cp-1-vm"), removeMachines("one-cp-2-vm", "one-cp-3-vm", "one-general-1-vm", "one-general-2-vm")},
			findings: []string{"create one-cp-1-vm: " + fmt.Sprintf(missing, 0, 1, "one-cp-1-vm")},
		},
		"one control plane goes": {
			preview:  "fewer-control-planes",
			edits:    []edit{leaving(), operation("one-cp-3-vm", planguard.Same)},
			findings: []string{"delete one-cp-2-vm: " + member},
		},
		"a control plane is replaced while another changes": {
			preview: "fewer-control-planes",
			edits: []edit{
				leaving("one-cp-2"), operation("one-cp-2-vm", planguard.Replace), operation("one-cp-3-vm", planguard.Update),
			},
		},
		"a control plane is replaced that nothing has leave": {
			preview:  "fewer-control-planes",
			edits:    []edit{leaving(), operation("one-cp-2-vm", planguard.Replace), operation("one-cp-3-vm", planguard.Update)},
			findings: []string{"replace one-cp-2-vm: " + member},
		},
		"two control planes are replaced": {
			preview: "fewer-control-planes",
			edits: []edit{
				leaving("one-cp-2", "one-cp-3"), operation("one-cp-2-vm", planguard.Replace), operation("one-cp-3-vm", planguard.Replace),
			},
			findings: []string{"replace one-cp-2-vm: " + two, "replace one-cp-3-vm: " + two},
		},
		"a control plane is replaced while all others go": {
			preview: "fewer-control-planes",
			edits: []edit{
				leaving("one-cp-1", "one-cp-2", "one-cp-3"), operation("one-cp-1-vm", planguard.Replace),
			},
			findings: []string{
				"replace one-cp-1-vm: " + isControlPlane + ", and no other one stays: `up` would end with an error; add control planes first",
			},
		},
		"one control plane changes": {
			preview: "fewer-control-planes",
			edits:   []edit{operation("one-cp-2-vm", planguard.Update), operation("one-cp-3-vm", planguard.Same)},
		},
		"control planes restart, one after the other": {preview: "more-cores"},
		"what changes is not said, or a description": {
			preview: "more-cores",
			edits: []edit{
				step("one-cp-1-vm", func(s *planguard.Step) { s.New, s.Properties = s.Old, nil }),
				step("one-cp-2-vm", func(s *planguard.Step) { s.New, s.Properties = s.Old, []string{"description"} }),
			},
		},
		"a disk shrinks": {
			preview: "more-cores",
			edits: []edit{
				operation("one-cp-1-vm", planguard.Same), operation("one-cp-2-vm", planguard.Same),
				operation("one-cp-3-vm", planguard.Same),
				step("one-general-1-vm", func(s *planguard.Step) {
					s.Operation, s.New = planguard.Update, &planguard.State{
						Inputs: map[string]any{"disks": []any{map[string]any{"interface": "scsi0", "size": 10.0}}},
					}
					s.Old.Outputs = map[string]any{"disks": []any{map[string]any{"interface": "scsi0", "size": 20.0}}}
				}),
			},
			findings: []string{
				"update one-general-1-vm: `up` would end with an error: 10 is less than the 20 GiB that one-general-1 has at scsi0, and disks cannot shrink; use at least 20",
			},
		},
		"a control plane that is read or refreshed is not touched": {
			preview:  "fewer-control-planes",
			edits:    []edit{leaving(), operation("one-cp-1-vm", planguard.Refresh), operation("one-cp-3-vm", planguard.Read)},
			findings: []string{"delete one-cp-2-vm: " + member},
		},
		"a control plane that is new is not touched": {
			preview: "fewer-control-planes",
			edits: []edit{
				leaving(),
				step("one-cp-3-vm", func(s *planguard.Step) { s.Operation, s.Old, s.New = planguard.Create, nil, s.Old }),
			},
			findings: []string{"delete one-cp-2-vm: " + member},
		},
		"control planes of two clusters": {
			preview: "fewer-control-planes",
			edits:   []edit{leaving(), input("one-cp-3-vm", "tags", []any{"cluster-other", "controlplane", "talos"})},
			findings: []string{
				"delete one-cp-2-vm: " + member,
				"delete one-cp-3-vm: it is a control plane of cluster other and a member of its etcd" + noLeaveCommand,
			},
		},
		"a worker without data disks goes": {
			preview: "fewer-control-planes",
			edits: []edit{
				operation("one-cp-2-vm", planguard.Same), input("one-cp-3-vm", "tags", []any{"cluster-one", "talos", "worker"}),
			},
		},
		"data disks are taken out": {preview: "without-data-disks", findings: dataDisks},
		"data disks stay": {
			preview: "without-data-disks",
			edits: []edit{
				step("one-general-1-vm", func(s *planguard.Step) { s.New = s.Old }),
				step("one-general-2-vm", func(s *planguard.Step) { s.New = s.Old }),
			},
		},
		"machines go with their data disks": {
			preview: "without-data-disks",
			edits: []edit{
				operation("one-general-1-vm", planguard.Delete),
				step("one-general-2-vm", func(s *planguard.Step) { s.Operation, s.New = planguard.Replace, s.Old }),
			},
			findings: []string{"delete one-general-1-vm: " + erased, "replace one-general-2-vm: " + erased},
		},
		"a machine goes with local volumes": {
			preview: "without-data-disks",
			edits: []edit{
				operation("one-general-2-vm", planguard.Same), operation("one-general-1-vm", planguard.Delete),
				input("one-general-1-configuration", "configPatches", []any{
					"kind: UserVolumeConfig\nname: local-path\nvolumeType: directory\n", map[string]any{"secret": true},
				}),
				func(p *planguard.Preview) {
					p.Warnings = append(p.Warnings,
						planguard.Message{Text: "one-general-1 is deleted with volumes that the stack file does not name: local-lvm:vm-3000-disk-9"},
						planguard.Message{Text: "one-general-11 is deleted with volumes that the stack file does not name: local-lvm:vm-3010-disk-9"})
				},
			},
			findings: []string{"delete one-general-1-vm: " + erased +
				"; directory volume local-path on its system disk is deleted with the local volumes of pods" +
				"; volumes that the stack file does not name are deleted with it: local-lvm:vm-3000-disk-9"},
		},
		"a machine goes with local volumes that its command knows": {
			preview: "without-data-disks",
			edits: []edit{
				operation("one-general-2-vm", planguard.Same), operation("one-general-1-vm", planguard.Delete),
				step("one-general-1-configuration", func(s *planguard.Step) {
					s.URN = urn.URN(strings.Replace(string(s.URN), tokens.ConfigurationApply, tokens.LocalCommand, 1))
				}),
				input("one-general-1-configuration", "environment", map[string]any{tokens.VolumesVariable: "local-path scratch"}),
			},
			findings: []string{"delete one-general-1-vm: " + erased +
				"; directory volume local-path on its system disk is deleted with the local volumes of pods" +
				"; directory volume scratch on its system disk is deleted with the local volumes of pods"},
		},
		"a machine of no cluster goes": {
			preview: "without-data-disks",
			edits: []edit{
				operation("one-general-1-vm", planguard.Delete),
				input("one-general-1-vm", "tags", []any{"debian", "machine"}), operation("one-general-2-vm", planguard.Same),
			},
			findings: []string{"delete one-general-1-vm: data disk scsi0 (20 GiB on local-lvm) is deleted with all that is on it; " + erased},
		},
		"a machine with a GPU is recreated": {
			preview: "drift",
			edits: []edit{
				operation("prod-general-1-vm", planguard.Replace),
				input("prod-general-1-vm", "hostpcis", []any{map[string]any{"mapping": "rtx4000"}}),
			},
			findings: []string{
				"replace prod-general-1-vm: it has devices of its host and is recreated: what runs on it ends, and what is on its disks is gone",
			},
		},
		"a machine with a GPU changes in place": {
			preview: "drift", edits: []edit{input("prod-general-1-vm", "hostpcis", []any{map[string]any{"mapping": "rtx4000"}})},
		},
		"a machine without a GPU is recreated": {
			preview: "drift",
			edits:   []edit{operation("prod-general-1-vm", planguard.Replace), input("prod-general-1-vm", "hostpcis", []any{})},
		},
		"unchanged machines are not looked at": {
			preview: "without-data-disks",
			edits:   []edit{operation("one-general-1-vm", planguard.Same), operation("one-general-2-vm", planguard.Same)},
		},
		"templates go from below their linked clones": {preview: "template", findings: template},
		"a template changes in place": {
			preview: "template", edits: []edit{operation("talos-pve1-build", planguard.Update)}, findings: template[1:],
		},
		"a template goes with its clones, but for one": {
			preview: "template",
			edits: []edit{
				leaving(), operation("one-general-1-vm", planguard.Delete), operation("one-cp-1-vm", planguard.Delete),
				operation("talos-pve2-build", planguard.Same),
				operation("talos-pve1-build", planguard.Delete),
			},
			findings: []string{
				"delete one-cp-1-vm: " + member, "delete one-general-1-vm: " + strings.Replace(erased, "scsi1", "virtio1", 1),
				"delete talos-pve1-build: " + clones + "one-cp-3-vm",
			},
		},
		"the clones are full": {
			preview: "template",
			edits: []edit{
				input("one-cp-2-vm", "clone", map[string]any{"full": true, "vmId": 902.0}), input("one-general-2-vm", "clone", nil),
			},
			findings: template[:1],
		},
		"a template whose VMID is not known has all clones": {
			preview: "template",
			edits: []edit{
				operation("talos-pve2-build", planguard.Same), step("talos-pve1-build", func(s *planguard.Step) { s.Old.Parent = "" }),
				input("one-general-2-vm", "clone", nil),
			},
			findings: []string{
				"replace talos-pve1-build: " + clones + "one-cp-1-vm, one-cp-2-vm, one-cp-3-vm, one-general-1-vm",
			},
		},
		"secrets and the bootstrap are replaced": {
			preview: "template",
			edits: []edit{
				operation("talos-pve1-build", planguard.Same), operation("talos-pve2-build", planguard.Same),
				operation("one-secrets", planguard.Replace), operation("one-bootstrap", planguard.Replace),
			},
			findings: []string{
				"replace one-bootstrap: etcd is bootstrapped once in a cluster's life",
				"replace one-secrets: the cluster's certificate authorities and tokens are gone with it; " +
					"no node and no client of the cluster can be reached any more",
			},
		},
		"secrets and the bootstrap change in place": {
			preview: "template",
			edits: []edit{
				operation("talos-pve1-build", planguard.Same), operation("talos-pve2-build", planguard.Same),
				operation("one-secrets", planguard.Update), operation("one-bootstrap", planguard.Update),
			},
		},
		"commands of other components go": {
			preview: "template",
			edits: []edit{
				operation("one-healthy", planguard.Delete),
				func(p *planguard.Preview) {
					for i, s := range p.Steps {
						p.Steps[i].URN = s.URN.Rename(strings.Replace(s.Name(), "-build", tokens.OfBootstrap, 1))
					}
				},
				step("talos-pve1-bootstrap", moveToOtherComponent), step("talos-pve2-bootstrap", moveToOtherComponent),
				operation("one-bootstrap", planguard.Delete),
				step("one-bootstrap", moveToOtherComponent),
			},
		},
		"what is approved is left out": {
			preview: "fewer-control-planes", edits: []edit{leaving()}, approved: []string{"one-cp-2-vm"}, findings: both[1:],
		},
		"a machine is approved by its node": {
			preview:  "fewer-control-planes",
			approved: []string{"one-cp-2", "one-cp-3", "one-cp-1"},
			unused:   []string{"one-cp-1"},
		},
		"what a machine loses is approved by name": {
			preview: "without-data-disks",
			edits: []edit{
				operation("one-general-2-vm", planguard.Same), operation("one-general-1-vm", planguard.Delete),
			},
			approved: []string{"one-general-1/scsi1"},
		},
		"a part of what a machine loses is approved": {
			preview: "without-data-disks",
			edits: []edit{
				operation("one-general-2-vm", planguard.Same), operation("one-general-1-vm", planguard.Delete),
				input("one-general-1-configuration", "configPatches", []any{"kind: UserVolumeConfig\nname: local-path\nvolumeType: directory\n"}),
			},
			approved: []string{"one-general-1/local-path"},
			findings: []string{"delete one-general-1-vm: " + erased +
				"; directory volume local-path on its system disk is deleted with the local volumes of pods"},
		},
		"a control plane is not approved by what it loses": {
			preview: "fewer-control-planes", edits: []edit{leaving()}, findings: both,
			approved: []string{"one-cp-2/scsi0"}, unused: []string{"one-cp-2/scsi0"},
		},
		"a template is not approved by another's name": {
			preview:  "template",
			approved: []string{"talos-pve1-build", "talos-pve2"},
			findings: template[1:],
			unused:   []string{"talos-pve2"},
		},
		"a resource is approved by its URN": {
			preview: "without-data-disks", findings: dataDisks[1:],
			approved: []string{
				"urn:pulumi:lab::talos-proxmox::talos-proxmox:cluster:TalosCluster$talos-proxmox:node:TalosNode$" +
					"proxmoxve:VM/virtualMachine:VirtualMachine::one-general-1-vm",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			p := readRecording(t, test.preview)
			for _, change := range test.edits {
				change(p)
			}

			findings, unused := planguard.Check(p, test.approved)

			var texts []string
			for _, f := range findings {
				texts = append(texts, f.String())
			}

			assert.Equal(t, test.findings, texts)
			assert.Equal(t, test.unused, unused)
		})
	}
}

// moveToOtherComponent moves a resource to another component.
func moveToOtherComponent(s *planguard.Step) {
	s.Operation = planguard.Delete

	name := string(s.URN)
	for _, component := range []string{"template:GoldenTemplate", "cluster:TalosCluster"} {
		name = strings.Replace(name, component, "other:Component", 1)
	}

	s.URN = urn.URN(name)
}

// TestChangedBeside: what a plan does to other machines than one, upgrades of their clusters included.
func TestChangedBeside(t *testing.T) {
	t.Parallel()

	cores := readRecording(t, "more-cores")
	assert.Equal(t, []string{"update one-cp-2-vm", "update one-cp-3-vm"}, cores.ChangedBeside("one-cp-1"))

	upgrades := &planguard.Preview{Warnings: []planguard.Message{
		{Text: "one-general-1 is upgraded: Talos v1.14.3 → v1.14.4"},
		{Text: "one-cp-1, one-general-2 are upgraded in turn: Talos v1.14.3 → v1.14.4"},
		{Text: "cluster one: Kubernetes v1.36.1 → v1.37.2 (clusters[0].kubernetesVersion): the control planes' pods are replaced"},
		{Text: "cluster one: NVIDIA's GPU Operator fails to validate the driver"},
	}}
	assert.Equal(t, []string{upgrades.Warnings[2].Text, upgrades.Warnings[1].Text},
		upgrades.ChangedBeside("one-general-1"))
}

// TestDescribeSaysWhatHappensToMachines by the program's own rules.
func TestDescribeSaysWhatHappensToMachines(t *testing.T) {
	t.Parallel()

	assert.Equal(t, []string{"one-cp-1 … one-cp-3 restart: cores 2 → 3"}, readRecording(t, "more-cores").Describe(nil),
		"one after the other, so that the API stays")
	assert.Equal(t, []string{"one-cp-2, one-cp-3 are deleted"}, readRecording(t, "fewer-control-planes").Describe(nil))
	assert.Equal(t, []string{"prod-general-1 restarts: memory 12288 → 16384 MiB"}, readRecording(t, "drift").Describe(nil))
}
