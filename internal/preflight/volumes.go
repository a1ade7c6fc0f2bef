package preflight

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/spec"
)

// readVolumes reads which other machines have volumes on the datastores of storage classes. Whoever may allocate there
// sees all volumes.
func (r *reader) readVolumes(ctx context.Context) {
	ownVMIDs := r.ownVMIDs()
	ownVMIDs[spec.CSIVMID] = true

	var wg sync.WaitGroup

	for _, account := range r.planned.accounts {
		for _, host := range account.hosts {
			for _, datastore := range account.Proxmox.Datastores() {
				wg.Go(func() {
					var volumes []struct {
						VMID json.Number `json:"vmid"` // a number, or its text
					}
					// checkStorageClasses reports a datastore that is not on this host.
					if err := r.Proxmox.Get(ctx, fmt.Sprintf("/nodes/%s/storage/%s/content?content=%s",
						url.PathEscape(host), url.PathEscape(datastore), contentImages), &volumes); err != nil {
						return
					}

					r.mu.Lock()
					defer r.mu.Unlock()

					for _, v := range volumes {
						number, err := v.VMID.Int64()

						vmid := int(number)
						if foreign := r.site.ForeignVolumes[datastore]; err == nil && !ownVMIDs[vmid] && !slices.Contains(foreign, vmid) {
							r.site.ForeignVolumes[datastore] = append(foreign, vmid)
						}
					}
				})
			}
		}
	}

	wg.Wait()
}

// ownVMIDs returns the VMIDs of the stack's machines and templates, planned and existing.
func (r *reader) ownVMIDs() map[int]bool {
	own := map[int]bool{}
	for _, t := range r.Plan.Templates {
		own[t.VMID] = true
	}

	for _, m := range r.planned.machines {
		own[m.VMID] = true
	}

	for vmid := range r.Stack.Machines {
		own[vmid] = true
	}

	return own
}

// checkCSIVMID warns of a VM that Proxmox takes for the owner of the CSI plugin's volumes.
func (c *checker) checkCSIVMID() {
	at := slices.IndexFunc(c.site.Machines, func(m proxmoxapi.Listed) bool { return m.VMID == spec.CSIVMID })

	for _, a := range c.planned.accounts {
		if at >= 0 && a.Proxmox.CSI != nil {
			vm := c.site.Machines[at]
			c.warn("", a.path+".proxmox.csi", nil, "is used, and Proxmox has a VM %d (%s on %s), for whose disks it takes the volumes "+
				"of the CSI plugin: who deletes that VM with unreferenced disks, as Pulumi's provider does, deletes the volumes of all "+
				"pods; give that machine another VMID (restore its backup with another number)", vm.VMID, vm.Name, vm.Host)
		}
	}
}

// checkForeignVolumes warns of storage classes whose datastore has volumes of other machines. Those of the stack's own
// machines are a matter of the plan.
func (c *checker) checkForeignVolumes() {
	for _, a := range c.planned.accounts {
		for _, class := range a.Proxmox.StorageClasses {
			found := slices.Sorted(slices.Values(c.site.ForeignVolumes[class.Datastore]))
			if len(found) == 0 {
				continue
			}

			c.warn("", class.Path+".datastore", class.Datastore, "holds volumes of machines that are not this stack's (%s), which the "+
				"CSI plugin's token may delete: give the class a datastore of its own (docs/platform.md#volumes)",
				strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(found), "["), "]"))
		}
	}
}
