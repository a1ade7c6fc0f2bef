// Package ownership reads and writes the owner of a machine, PCI mapping or account on Proxmox, in its description. The
// format must not change, because existing machines have it.
package ownership

import (
	"fmt"
	"slices"
	"strings"
)

// The first word of a description.
const (
	nodePrefix     = "talos-proxmox-node"
	templatePrefix = "talos-proxmox-template"
	mappingPrefix  = "talos-proxmox-mapping"
	accountPrefix  = "talos-proxmox-account"
	haPrefix       = "talos-proxmox-ha"
)

// Owner identifies a stack. Its name is organization/project/stack; templates' markers have no organization. The id is
// random and from the stack's state: two backends may have stacks of the same name. Markers of earlier versions, and of
// other programs, have no id.
type Owner struct{ Name, ID string }

// Of returns a stack as owner.
func Of(organization, project, stack, id string) Owner {
	return Owner{Name: organization + "/" + project + "/" + stack, ID: id}
}

// Matches reports whether the owner is this stack: by id if the marker has one, otherwise by the names of project and
// stack.
func (o Owner) Matches(stack Owner) bool {
	if o.ID != "" {
		return o.ID == stack.ID
	}

	return o.IsNamesake(stack)
}

// IsNamesake reports whether the owner has the same names of project and stack, in any organization. A namesake that is
// not this stack is the stack before its state was lost, or a stack in another backend.
func (o Owner) IsNamesake(stack Owner) bool {
	return o.projectAndStack() != "" && o.projectAndStack() == stack.projectAndStack()
}

// IsLost reports whether the owner is a namesake that the stack's state does not know: it has another id, or no id
// while the state is blank.
func (o Owner) IsLost(stack Owner, blank bool) bool {
	return o.IsNamesake(stack) && (!o.Matches(stack) || blank && o.ID == "")
}

// Stack returns the name of the stack.
func (o Owner) Stack() string { return o.Name[strings.LastIndex(o.Name, "/")+1:] }

// projectAndStack returns project/stack.
func (o Owner) projectAndStack() string {
	words := strings.Split(o.Name, "/")

	return strings.Join(words[max(0, len(words)-2):], "/")
}

// String returns organization/talos-proxmox/prod, with the id if there is one.
func (o Owner) String() string {
	if o.ID == "" {
		return o.Name
	}

	return o.Name + " (" + idPrefix + o.ID + ")"
}

// idPrefix precedes an id.
const idPrefix = "id="

// fields returns the owner as in a marker.
func (o Owner) fields() string {
	if o.ID == "" {
		return "owner=" + o.Name
	}

	return "owner=" + o.Name + " " + idPrefix + o.ID
}

// NodeAbout returns the text about a Kubernetes node in its VM's description.
func NodeAbout(role, name, cluster string) string {
	return fmt.Sprintf("Talos %s %s of cluster %s", role, name, cluster)
}

// MachineAbout returns the text about a plain machine in its VM's description.
func MachineAbout(system, name string) string { return system + ", machine " + name }

// About returns the text about the machine in a description; empty without a marker.
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
	return fmt.Sprintf("%s %s (%s)", nodePrefix, owner.fields(), about)
}

// Mapping returns the comment of a PCI mapping: talos-proxmox-mapping owner=organization/talos-proxmox/prod (GPUs).
func Mapping(owner Owner) string {
	return fmt.Sprintf("%s %s (GPUs)", mappingPrefix, owner.fields())
}

// Account returns the comment of an account on Proxmox: talos-proxmox-account owner=organization/talos-proxmox/prod
// (prod-csi).
func Account(owner Owner, about string) string {
	return fmt.Sprintf("%s %s (%s)", accountPrefix, owner.fields(), about)
}

// OwnerOf parses the owner in the description of a node's VM, template, PCI mapping or account; ok is false for
// anything else.
func OwnerOf(description string) (owner Owner, ok bool) {
	marked, _, _ := strings.Cut(description, "(")

	words := strings.Fields(marked)
	if len(words) < 2 || !slices.Contains([]string{nodePrefix, templatePrefix, mappingPrefix, accountPrefix}, words[0]) {
		return Owner{}, false
	}

	name, found := strings.CutPrefix(words[1], "owner=")
	if !found || name == "" {
		return Owner{}, false
	}

	owner = Owner{Name: name}

	for _, word := range words[2:] {
		if id, found := strings.CutPrefix(word, idPrefix); found {
			owner.ID = id
		}
	}

	return owner, true
}
