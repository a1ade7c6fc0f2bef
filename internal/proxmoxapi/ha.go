package proxmoxapi

import (
	"context"
	"net/url"
	"slices"
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

// HAService is what Proxmox' high availability makes of a resource. Its state is started, stopped, fence (its host is
// silent, and being fenced), recovery (it waits for another host), error, and so on.
type HAService struct {
	ID    string `json:"sid"` // vm:100
	Type  string `json:"type"`
	Host  string `json:"node"`
	State string `json:"state"`
}

// HAServices returns the resources that Proxmox' high availability manages: also those that are no longer configured,
// for some seconds. It needs Sys.Audit on /.
func HAServices(ctx context.Context, get Get) (services []HAService, err error) {
	if err := get(ctx, "/cluster/ha/status/current", &services); err != nil {
		return nil, Cause(err)
	}

	return slices.DeleteFunc(services, func(s HAService) bool { return s.Type != "service" }), nil // hosts and the like
}
