// Package marker says on Proxmox whose a machine is: in the first words of its description. The words must not change, since machines that exist carry them.
package marker

import (
	"fmt"
	"strings"
)

// What a description begins with.
const (
	node     = "talos-proxmox-node"
	template = "talos-proxmox-template"
)

// Owner names a stack: organization/project/stack. A template's leaves the organization out.
type Owner string

// Of returns the owner that a stack is.
func Of(organization, project, stack string) Owner {
	return Owner(organization + "/" + project + "/" + stack)
}

// Is tells whether the owner is this stack of this project, of whatever organization.
func (o Owner) Is(project, stack string) bool {
	name := project + "/" + stack

	return string(o) == name || strings.HasSuffix(string(o), "/"+name)
}

// Node returns the description of a node's VM: talos-proxmox-node owner=organization/talos-proxmox/prod (Talos worker prod-general-1 of cluster prod).
func Node(owner Owner, about string) string {
	return fmt.Sprintf("%s owner=%s (%s)", node, owner, about)
}

// OwnerOf reads the owner from the description of a node's VM or of a template; ok is false for any other machine.
func OwnerOf(description string) (owner Owner, ok bool) {
	words := strings.Fields(description)
	if len(words) < 2 || words[0] != node && words[0] != template {
		return "", false
	}
	name, found := strings.CutPrefix(words[1], "owner=")
	if !found || name == "" {
		return "", false
	}

	return Owner(name), true
}
