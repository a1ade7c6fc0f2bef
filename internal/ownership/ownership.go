// Package ownership says on Proxmox whose a machine, a PCI mapping or an account is: in the first words of its
// description. The words must not change, since machines that exist carry them.
package ownership

import (
	"fmt"
	"slices"
	"strings"
)

// What a description begins with.
const (
	node     = "talos-proxmox-node"
	template = "talos-proxmox-template"
	mapping  = "talos-proxmox-mapping"
	account  = "talos-proxmox-account"
)

// Owner is a stack. Its name is organization/project/stack, of which a template's marker leaves the organization out.
// The id is the stack's own, at random, from its state: two backends may have stacks of the same name. Markers of
// earlier versions, and those of programs of others, have none.
type Owner struct{ Name, ID string }

// Of returns the owner that a stack is.
func Of(organization, project, stack, id string) Owner {
	return Owner{Name: organization + "/" + project + "/" + stack, ID: id}
}

// Is tells whether the owner of something is this stack: by the id where its marker has one, else by the names of
// project and stack.
func (o Owner) Is(stack Owner) bool {
	if o.ID != "" {
		return o.ID == stack.ID
	}

	return o.IsNamesake(stack)
}

// IsNamesake tells whether the owner has the names of this stack and its project, in whatever organization. One that is
// not this stack is what it was before its state was lost, or a stack of another backend.
func (o Owner) IsNamesake(stack Owner) bool { return o.local() != "" && o.local() == stack.local() }

// IsLost tells whether the state of a stack knows nothing of the owner, although it has its names: another id, or none
// while the state is blank.
func (o Owner) IsLost(stack Owner, blank bool) bool {
	return o.IsNamesake(stack) && (!o.Is(stack) || blank && o.ID == "")
}

// local is project/stack.
func (o Owner) local() string {
	words := strings.Split(o.Name, "/")

	return strings.Join(words[max(0, len(words)-2):], "/")
}

// String is organization/talos-proxmox/prod, and the id where there is one.
func (o Owner) String() string {
	if o.ID == "" {
		return o.Name
	}

	return o.Name + " (" + idKey + o.ID + ")"
}

// idKey is what an id is written behind.
const idKey = "id="

// words are an owner in a marker.
func (o Owner) words() string {
	if o.ID == "" {
		return "owner=" + o.Name
	}

	return "owner=" + o.Name + " " + idKey + o.ID
}

// NodeAbout is what the description of a Kubernetes node's VM says of it.
func NodeAbout(role, name, cluster string) string {
	return fmt.Sprintf("Talos %s %s of cluster %s", role, name, cluster)
}

// MachineAbout is what the description of the VM of a machine of no cluster says of it.
func MachineAbout(system, name string) string { return system + ", machine " + name }

// About reads what a description says of its machine; empty = it has no marker.
func About(description string) string {
	_, about, _ := strings.Cut(strings.TrimSpace(description), " (")
	if _, marked := OwnerOf(description); !marked || !strings.HasSuffix(about, ")") {
		return ""
	}

	return strings.TrimSuffix(about, ")")
}

// Node returns the description of a node's VM: talos-proxmox-node owner=organization/talos-proxmox/prod
// id=9f86d081884c7d65 (Talos worker prod-general-1 of cluster prod).
func Node(owner Owner, about string) string {
	return fmt.Sprintf("%s %s (%s)", node, owner.words(), about)
}

// Mapping returns the comment of a PCI mapping: talos-proxmox-mapping owner=organization/talos-proxmox/prod (GPUs).
func Mapping(owner Owner) string {
	return fmt.Sprintf("%s %s (GPUs)", mapping, owner.words())
}

// Account returns the comment of an account on Proxmox: talos-proxmox-account owner=organization/talos-proxmox/prod
// (prod-csi).
func Account(owner Owner, about string) string {
	return fmt.Sprintf("%s %s (%s)", account, owner.words(), about)
}

// OwnerOf reads the owner from the description of a node's VM, of a template, or of a PCI mapping or account; ok is
// false for anything else.
func OwnerOf(description string) (owner Owner, ok bool) {
	marked, _, _ := strings.Cut(description, "(")

	words := strings.Fields(marked)
	if len(words) < 2 || !slices.Contains([]string{node, template, mapping, account}, words[0]) {
		return Owner{}, false
	}

	name, found := strings.CutPrefix(words[1], "owner=")
	if !found || name == "" {
		return Owner{}, false
	}

	owner = Owner{Name: name}

	for _, word := range words[2:] {
		if id, found := strings.CutPrefix(word, idKey); found {
			owner.ID = id
		}
	}

	return owner, true
}
