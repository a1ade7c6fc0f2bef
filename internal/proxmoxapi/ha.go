package proxmoxapi

import (
	"context"
	"net/url"
	"strconv"
)

// HAResource is a resource of Proxmox' high availability.
type HAResource struct {
	ID          string `json:"sid"` // vm:100
	State       string // as wanted: started, stopped, disabled, ignored; empty = started
	MaxRestart  int    `json:"max_restart"`
	MaxRelocate int    `json:"max_relocate"`
	Comment     string
}

// HARule is a rule of Proxmox' high availability.
type HARule struct {
	Name      string `json:"rule"`
	Type      string // node-affinity, resource-affinity
	Affinity  string // of resources: negative, positive
	Resources string // vm:100,vm:101
	Nodes     string // of hosts: pve1,pve2:1
	Strict    any
	Comment   string
	Digest    string
}

// HAService is what Proxmox makes of a resource.
type HAService struct {
	ID    string `json:"sid"`
	Type  string // service; others are hosts and the like
	Host  string `json:"node"`
	State string // started, stopped, fence, recovery, error, …
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

// HAServices returns the services that Proxmox' high availability manages.
func HAServices(ctx context.Context, get Get) (services []HAService, err error) {
	var all []HAService
	if err := get(ctx, "/cluster/ha/status/current", &all); err != nil {
		return nil, Cause(err)
	}

	for _, s := range all {
		if s.Type == "service" {
			services = append(services, s)
		}
	}

	return services, nil
}
