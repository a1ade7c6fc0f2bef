package preflight

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// csiMachine is the VMID that volumes of the CSI plugin have in their names.
const csiMachine = 9999

// askVolumes asks whose volumes are on the datastores of storage classes: who may allocate there sees all of them.
func (a *asker) askVolumes(ctx context.Context) {
	ours := map[int]bool{csiMachine: true}
	for _, t := range a.Plan.Templates {
		ours[t.VMID] = true
	}

	for _, m := range a.work.machines {
		ours[m.VMID] = true
	}

	for vmid := range a.Stack.Machines {
		ours[vmid] = true
	}

	var all sync.WaitGroup

	for _, c := range a.work.accounts {
		for _, host := range c.hosts {
			for _, datastore := range c.Proxmox.Datastores() {
				all.Go(func() {
					var volumes []struct {
						VMID json.Number `json:"vmid"` // a number, or its text
					}
					// One that is not on this host is judged where hosts and datastores are compared.
					if err := a.Proxmox.Get(ctx, fmt.Sprintf("/nodes/%s/storage/%s/content?content=%s",
						url.PathEscape(host), url.PathEscape(datastore), contentImages), &volumes); err != nil {
						return
					}

					a.mutex.Lock()
					defer a.mutex.Unlock()

					for _, v := range volumes {
						number, err := v.VMID.Int64()
						if vmid := int(number); err == nil && !ours[vmid] && !slices.Contains(a.site.Foreign[datastore], vmid) {
							a.site.Foreign[datastore] = append(a.site.Foreign[datastore], vmid)
						}
					}
				})
			}
		}
	}

	all.Wait()
}

// foreign warns of storage classes whose datastore holds volumes of machines that are not the stack's: the plan itself
// says of its own.
func (j *judge) foreign() {
	for _, c := range j.work.accounts {
		for _, class := range c.Proxmox.StorageClasses {
			found := slices.Sorted(slices.Values(j.site.Foreign[class.Datastore]))
			if len(found) == 0 {
				continue
			}

			j.warn("", class.Path+".datastore", class.Datastore, "holds volumes of machines that are not this stack's (%s), which the "+
				"CSI plugin's token may delete: give the class a datastore of its own (docs/platform.md#volumes)",
				strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(found), "["), "]"))
		}
	}
}
