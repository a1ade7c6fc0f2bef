// Package marker says on Proxmox whose a machine, a PCI mapping or an account is: in the first words of its
// description. The words must not change, since machines that exist carry them.
package marker

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

// Node returns the description of a node's VM: talos-proxmox-node owner=organization/talos-proxmox/prod (Talos worker
// prod-general-1 of cluster prod).
func Node(owner Owner, about string) string {
	return fmt.Sprintf("%s owner=%s (%s)", node, owner, about)
}

// Mapping returns the comment of a PCI mapping: talos-proxmox-mapping owner=organization/talos-proxmox/prod (GPUs).
func Mapping(owner Owner) string {
	return fmt.Sprintf("%s owner=%s (GPUs)", mapping, owner)
}

// Account returns the comment of an account on Proxmox: talos-proxmox-account owner=organization/talos-proxmox/prod
// (prod-csi).
func Account(owner Owner, about string) string {
	return fmt.Sprintf("%s owner=%s (%s)", account, owner, about)
}

// OwnerOf reads the owner from the description of a node's VM, of a template, or of a PCI mapping or account; ok is
// false for anything else.
func OwnerOf(description string) (owner Owner, ok bool) {
	words := strings.Fields(description)
	if len(words) < 2 || !slices.Contains([]string{node, template, mapping, account}, words[0]) {
		return "", false
	}

	name, found := strings.CutPrefix(words[1], "owner=")
	if !found || name == "" {
		return "", false
	}

	return Owner(name), true
}
