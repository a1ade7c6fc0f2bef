package ownership

import (
	"fmt"
	"strings"
)

// States of a template in its description.
const (
	Building = "building"
	Ready    = "ready"
	Removing = "removing"
)

// Template is what the description of a template says; the owner's name is project/stack. Descriptions that the build
// script in the host's shell writes have the same form.
type Template struct {
	Owner Owner
	// Provenance is a digest of what it is made of, State is Building, Ready or Removing.
	Provenance, State string
}

// Description returns the description of a VM: talos-proxmox-template owner=talos-proxmox/prod provenance=1f…
// state=ready id=9f… (Talos v1.14.4).
func (t Template) Description(about string) string {
	words := []string{templatePrefix, "owner=" + t.Owner.Name, "provenance=" + t.Provenance, "state=" + t.State}
	if t.Owner.ID != "" {
		words = append(words, idPrefix+t.Owner.ID)
	}

	return fmt.Sprintf("%s (%s)", strings.Join(words, " "), about)
}

// TemplateOf parses the description of a VM; ok is false if it is not that of a template.
func TemplateOf(description string) (t Template, ok bool) {
	if t.Owner, ok = OwnerOf(description); !ok || !strings.HasPrefix(description, templatePrefix+" ") {
		return Template{}, false
	}

	marked, _, _ := strings.Cut(description, "(")
	for word := range strings.FieldsSeq(marked) {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "provenance":
			t.Provenance = value
		case "state":
			t.State = value
		}
	}

	return t, true
}
