package verbs

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/proxmoxapi"
)

func (b templateBuild) remove(ctx context.Context) error {
	state, _, err := b.inspect(ctx, true)
	if err != nil {
		return err
	}

	switch state {
	case absent:
		b.say("VM %d is gone already", b.req.VMID)
	case same, half:
		if err := b.destroy(ctx, state); err != nil {
			return err
		}

		b.say("%s is removed", b.req)
	case foreign, other:
		b.say("VM %d is not template %s of this provenance: it is left alone", b.req.VMID, b.req.Name)
	}

	return nil
}

// destroy removes the template. Proxmox frees the disks before it removes the configuration, which a host without
// quorum cannot: a template without disks must not be called finished, and without quorum nothing goes.
func (b templateBuild) destroy(ctx context.Context, state templateState) error {
	if err := b.refuseClones(ctx); err != nil {
		return err
	}

	if state != half {
		if err := b.configure(ctx, map[string]any{"description": b.req.description(ownership.Removing)}); err != nil {
			return err
		}
	}

	if err := b.Send(ctx, http.MethodDelete, b.vm+"?purge=1", nil); err != nil {
		return fmt.Errorf("unable to remove VM %d on host %s: %w", b.req.VMID, b.name, err)
	}

	// Somebody kept them, or a VM of another Proxmox cluster on the same storage has them.
	volumes, err := proxmoxapi.Volumes(ctx, b.get, b.name, b.req.VMID)
	if err != nil {
		b.say("what stays of the volumes of VMID %d is not known: %v", b.req.VMID, err)
	} else if len(volumes) > 0 {
		b.say("volumes of VMID %d that it did not name stay: %s", b.req.VMID, strings.Join(volumes, ", "))
	}

	return nil
}

// refuseClones refuses while there are linked clones. On LVM-thin there are none: copies of a thin volume stand alone.
func (b templateBuild) refuseClones(ctx context.Context) error {
	volumes, err := b.volumes(ctx, b.req.Datastore, "images")
	if err != nil {
		return err
	}

	ofClone := regexp.MustCompile(fmt.Sprintf(`base-%d-disk-[^/]*/(?:.*/)?vm-(\d+)-disk-`, b.req.VMID))

	var clones []string

	for _, volume := range volumes {
		if match := ofClone.FindStringSubmatch(volume); match != nil {
			clones = append(clones, match[1])
		}
	}

	if len(clones) == 0 {
		return nil
	}

	slices.Sort(clones)

	return fmt.Errorf("%s stays: linked clones of it are the VMs %s; remove them or make them full clones (qm disk move), "+
		"or state another talos-proxmox:templates.<class>.firstVmid for the new one", b.req,
		strings.Join(slices.Compact(clones), " "))
}
