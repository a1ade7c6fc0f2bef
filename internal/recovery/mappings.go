package recovery

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"

	"talos-proxmox/internal/marker"
	"talos-proxmox/internal/proxmoxapi"
)

// mapping is a PCI mapping that the killed run was making.
type mapping struct{ resource, name, comment string }

// mappingOf reads what a resource's inputs make.
func mappingOf(resource apitype.ResourceV3) (mapping, bool) {
	var inputs struct{ Name, Comment string }
	if string(resource.Type) != typeMapping || decode(resource.Inputs, &inputs) != nil || inputs.Name == "" {
		return mapping{}, false
	}

	return mapping{resource: resource.URN.Name(), name: inputs.Name, comment: inputs.Comment}, true
}

// foundMappings are the comments of Proxmox' PCI mappings, by name.
func (r *recovery) foundMappings(ctx context.Context) (map[string]string, error) {
	if len(r.mappings) == 0 {
		return nil, nil //nolint:nilnil // none
	}

	var list []struct {
		ID          string `json:"id"`
		Description string `json:"description"`
	}
	if err := r.api.client.Get(ctx, "/cluster/mapping/pci", &list); err != nil {
		return nil, fmt.Errorf("unable to list Proxmox's PCI mappings: %w", proxmoxapi.Said(err))
	}

	found := make(map[string]string, len(list))
	for _, m := range list {
		found[m.ID] = strings.TrimSpace(m.Description)
	}

	return found, nil
}

// foreignMapping says why a mapping is not provably the one that the killed run was making; empty = it is.
func (r *recovery) foreignMapping(made mapping, comment string) string {
	owner, marked := marker.OwnerOf(comment)
	switch {
	case !marked:
		return "its comment does not say that this stack made it"
	case !owner.Is(r.name, r.stackName()):
		return fmt.Sprintf("stack %s made it", owner)
	case comment != made.comment:
		return "its comment is not the one that this stack gives it"
	default:
		return ""
	}
}

// prospectOf says what becomes of a mapping that a creation made.
func (r *recovery) prospectOf(made mapping, found map[string]string) string {
	comment, there := found[made.name]
	if !there {
		return fmt.Sprintf("PCI mapping %s is not there, or not yet", made.name)
	}

	if why := r.foreignMapping(made, comment); why != "" {
		return fmt.Sprintf("PCI mapping %s is left alone: %s", made.name, why)
	}

	return fmt.Sprintf("PCI mapping %s is removed", made.name)
}

// removeMappings removes those that the pending creations made, and names what it leaves alone. No machine uses them:
// the stack makes machines after their mappings.
func (r *recovery) removeMappings(ctx context.Context) error {
	found, err := r.foundMappings(ctx)
	if err != nil {
		return err
	}

	var problems []error

	for _, made := range r.mappings {
		comment, there := found[made.name]
		if !there {
			continue
		}

		if r.foreignMapping(made, comment) == "" {
			if err := r.api.client.Delete(ctx, "/cluster/mapping/pci/"+url.PathEscape(made.name), nil); err != nil {
				problems = append(problems, fmt.Errorf("unable to remove PCI mapping %s: %w", made.name, proxmoxapi.Said(err)))

				continue
			}
		}

		r.say("%s", r.prospectOf(made, found))
	}

	return errors.Join(problems...)
}
