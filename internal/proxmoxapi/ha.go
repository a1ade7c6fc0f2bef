package proxmoxapi

import (
	"context"
	"net/url"
	"strconv"
)

// HAResource is a resource of Proxmox' high availability.
type HAResource struct {
	ID          string `json:"sid"` // vm:100
	MaxRestart  int    `json:"max_restart"`
	MaxRelocate int    `json:"max_relocate"`
	Comment     string
}

// HARule is a rule of Proxmox' high availability.
type HARule struct {
	Name      string `json:"rule"`
	Type      string // node-affinity, resource-affinity
	Resources string // vm:100,vm:101
	Nodes     string // of hosts: pve1,pve2:1
	Digest    string
}

// HAResourceID returns the id of a VM's resource.
func HAResourceID(vmid int) string { return "vm:" + strconv.Itoa(vmid) }

// PathHAResources and PathHARules are the collections of high availability in the API.
const (
	PathHAResources = "/cluster/ha/resources"
	PathHARules     = "/cluster/ha/rules"
)

// HAResourcePath returns the path of a VM's resource.
func HAResourcePath(vmid int) string {
	return PathHAResources + "/" + url.PathEscape(HAResourceID(vmid))
}

// HARulePath returns the path of a rule.
func HARulePath(name string) string { return PathHARules + "/" + url.PathEscape(name) }

// ManagedByHA returns the ids of the resources that Proxmox' high availability manages: also those that are no longer
// configured, for some seconds.
func ManagedByHA(ctx context.Context, get Get) (ids []string, err error) {
	var all []struct {
		ID   string `json:"sid"`
		Type string // service; others are hosts and the like
	}
	if err := get(ctx, "/cluster/ha/status/current", &all); err != nil {
		return nil, Cause(err)
	}

	for _, s := range all {
		if s.Type == "service" {
			ids = append(ids, s.ID)
		}
	}

	return ids, nil
}
