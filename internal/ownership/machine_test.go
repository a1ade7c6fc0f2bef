package ownership_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/internal/ownership"
)

func TestMachinesThatAreNotTheStacks(t *testing.T) {
	t.Parallel()

	stack := ownership.Of("acme", "talos-proxmox", "prod", "9f86")
	about := ownership.NodeAbout("worker", "prod-general-1", "prod")
	created := ownership.Machine{
		Name: "prod-general-1", VMID: 3000, CreationID: "uuid-1", Generation: "generation-1", MAC: "02:00:00:00:00:0a",
	}
	earlier := created // in the state of an earlier version of the program
	earlier.CreationID = ""
	template := ownership.Machine{Name: "talos-pve1", VMID: 900, Template: true}

	ours := ownership.Found{
		Name: "prod-general-1", Host: "pve1", Description: ownership.Node(stack, about), CreationID: "uuid-1",
		Generation: "generation-1", Cards: []string{"virtio=02:00:00:00:00:0A,bridge=vmbr0"},
	}
	with := func(change func(*ownership.Found)) ownership.Found {
		found := ours
		change(&found)

		return found
	}
	othersStack := ownership.Of("acme", "talos-proxmox", "prod", "0000")

	for name, test := range map[string]struct {
		machine ownership.Machine
		found   ownership.Found
		reason  string
	}{
		"the machine":                        {created, ours, ""},
		"the machine after a rollback":       {created, with(func(f *ownership.Found) { f.Generation = "generation-2" }), ""},
		"the machine without its notes":      {created, with(func(f *ownership.Found) { f.Description = "the best" }), ""},
		"the machine under another name":     {created, with(func(f *ownership.Found) { f.Name = "renamed" }), ""},
		"a machine of nobody":                {created, ownership.Found{Name: "mail-server", CreationID: "uuid-2"}, "no stack made it"},
		"a machine without an id, of nobody": {created, ownership.Found{Name: "mail-server"}, "no stack made it"},
		"the machine, imported into another stack": {
			created, with(func(f *ownership.Found) { f.Description = ownership.Node(othersStack, about) }),
			"it belongs to the stack acme/talos-proxmox/prod (id=0000)",
		},
		"the machine, created again by an interrupted run": {
			created, with(func(f *ownership.Found) { f.CreationID = "uuid-2" }), "",
		},
		"a copy of the machine": {
			created, with(func(f *ownership.Found) {
				f.CreationID, f.Cards = "uuid-2", []string{"virtio=BC:24:11:00:00:01,bridge=vmbr0"}
			}), "it is a copy: its UUID is uuid-2, and prod-general-1 was created with uuid-1",
		},
		"a copy of another machine of the stack": {
			created, with(func(f *ownership.Found) {
				f.CreationID = "uuid-2"
				f.Description = ownership.Node(stack, ownership.NodeAbout("worker", "prod-general-11", "prod"))
			}), "its notes are those of another machine (Talos worker prod-general-11 of cluster prod)",
		},
		"first use, by the marker":                {earlier, with(func(f *ownership.Found) { f.Generation = "generation-2" }), ""},
		"first use, by the generation":            {earlier, with(func(f *ownership.Found) { f.Description = "made by talos-proxmox" }), ""},
		"first use, of a machine of nobody":       {earlier, ownership.Found{Name: "mail-server", Generation: "generation-2"}, "no stack made it"},
		"first use, nothing known":                {ownership.Machine{Name: "prod-general-1"}, ours, ""},
		"first use, nothing known, and no marker": {ownership.Machine{Name: "prod-general-1"}, ownership.Found{}, "no stack made it"},
		"a template":                             {template, ownership.Found{Template: true, Description: "talos-proxmox-template owner=talos-proxmox/prod state=ready id=9f86 (Talos)"}, ""},
		"a template of a stack of the same name": {template, ownership.Found{Template: true, Description: "talos-proxmox-template owner=talos-proxmox/prod state=ready id=0000 (Talos)"}, ""},
		"a template of another stack": {
			template,
			ownership.Found{Template: true, Description: "talos-proxmox-template owner=talos-proxmox/test id=0000 (Talos)"},
			"it belongs to the stack talos-proxmox/test (id=0000)",
		},
		"a machine in the place of a template": {template, ownership.Found{Name: "mail-server"}, "it is no template"},
		"a template of nobody":                 {template, ownership.Found{Template: true}, "no stack made it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.reason, test.machine.ForeignReason(test.found, stack))
		})
	}
}
