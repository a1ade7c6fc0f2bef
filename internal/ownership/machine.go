package ownership

import (
	"fmt"
	"strings"
)

// Machine is a machine as it was created, so that another one with its VMID is recognized.
type Machine struct {
	Name string `json:"name"`
	VMID int    `json:"vmid"`
	// CreationID is the UUID that Proxmox gave it when it was created: [Found.CreationID]. Empty = not recorded.
	CreationID string `json:"creationId,omitempty"`
	// Generation is its last known vmgenid; empty = unknown. It is not compared with a recorded CreationID.
	Generation string `json:"generation,omitempty"`
	// MAC is the address of its first network card.
	MAC string `json:"mac,omitempty"`
	// Template: it is a template, which its build recognizes by marker and provenance.
	Template bool `json:"template,omitempty"`
}

// MachineOf returns the machine of a component from its outputs in the state, which no refresh changes.
func MachineOf(name string, outputs map[string]any) Machine {
	vmid, _ := outputs["vmid"].(float64)
	creationID, _ := outputs["creationId"].(string)
	generation, _ := outputs["generation"].(string)
	mac, _ := outputs["mac"].(string)

	return Machine{Name: name, VMID: int(vmid), CreationID: creationID, Generation: generation, MAC: mac}
}

// Found is what Proxmox has at a VMID.
type Found struct {
	Name, Host, Description string
	Template                bool
	// CreationID is the UUID of its SMBIOS: every creation and every clone gets a new one; rollbacks, migrations,
	// conversions to a template and restores to the same VMID keep it (qemu-server 9.2.6, API2/Qemu.pm and QemuServer.pm).
	CreationID, Generation string
	// Cards are the values of its network cards in Proxmox: virtio=02:00:00:00:00:01,bridge=vmbr0.
	Cards []string
}

// ForeignReason says why the machine that Proxmox has is not this one of the stack; empty if it is. A machine whose
// marker somebody removed is still the one with its creation id. Another creation id is accepted only with marker, name
// and MAC address of this very machine, which an ordinary clone or a restore as a new machine does not have: an
// interrupted run created it again.
func (m Machine) ForeignReason(found Found, stack Owner) string {
	owner, marked := OwnerOf(found.Description)

	switch {
	case m.Template && marked && owner.IsNamesake(stack) && found.Template:
		return "" // its build gives it this stack's id again, if it has the provenance
	case marked && !owner.Matches(stack):
		return fmt.Sprintf("it belongs to the stack %s", owner)
	case m.Template && !found.Template:
		return "it is no template"
	case m.CreationID != "" && m.CreationID == found.CreationID,
		m.CreationID == "" && m.Generation != "" && m.Generation == found.Generation:
		return ""
	case !marked:
		return "no stack made it"
	case !m.isNamedIn(found.Description):
		return fmt.Sprintf("its notes are those of another machine (%s)", About(found.Description))
	case m.CreationID != "" && !m.hasCard(found.Cards):
		return fmt.Sprintf("it is a copy: its UUID is %s, and %s was created with %s", found.CreationID, m.Name, m.CreationID)
	default:
		return ""
	}
}

// isNamedIn reports whether a description is about this machine.
func (m Machine) isNamedIn(description string) bool {
	return strings.Contains(" "+About(description)+" ", " "+m.Name+" ")
}

// hasCard reports whether one of the cards has the machine's MAC address; true if that is unknown.
func (m Machine) hasCard(cards []string) bool {
	for _, card := range cards {
		if strings.Contains(strings.ToLower(card), strings.ToLower(m.MAC)) {
			return true
		}
	}

	return m.MAC == ""
}

// Foreign describes a machine that has the VMID of one of the stack, and what to do.
func (m Machine) Foreign(found Found, why, stackName string) string {
	other := fmt.Sprintf("its VMID %d now belongs to VM %[1]d %s on host %s, and %s", m.VMID, found.Name, found.Host, why)
	if m.Template {
		return fmt.Sprintf("template %s: %s, so machines would be cloned from that. Choose another firstVmid for the class of the "+
			"template, or have the other machine moved to another VMID", m.Name, other)
	}

	return fmt.Sprintf("%s: %s. Leave that machine alone: `talos-proxmox recover %s` removes %[1]s from the state, and nothing "+
		"from Proxmox; then choose another VMID for %[1]s (nodes.<n>.vmid) if it is to exist, or have the other machine moved to "+
		"another VMID first", m.Name, other, stackName)
}
