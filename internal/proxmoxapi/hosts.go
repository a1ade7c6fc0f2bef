package proxmoxapi

import (
	"context"
	"fmt"
	"slices"

	"talos-proxmox/internal/request"
)

// States of a host in [Host.Status].
const (
	HostOnline  = request.HostOnline
	HostOffline = request.HostOffline
	HostUnknown = request.HostUnknown
)

// Host is a host as Proxmox' cluster reports it. Every user may list hosts (PVE::API2::Nodes); what they have needs
// Sys.Audit on them.
type Host struct {
	Name       string  `json:"node"`
	Status     string  `json:"status"`
	Cores      int     `json:"maxcpu"` // 0 = unknown
	CPU        float64 `json:"cpu"`    // part of the cores that is busy, 0 to 1
	Memory     int64   `json:"maxmem"` // in bytes; 0 = unknown
	MemoryUsed int64   `json:"mem"`    // in bytes
}

// Hosts lists the hosts of Proxmox' cluster. Without its quorum, all but the host that answers are offline.
func Hosts(ctx context.Context, get Get) (hosts []Host, err error) {
	if err := get(ctx, "/nodes", &hosts); err != nil {
		return nil, fmt.Errorf("unable to list Proxmox' hosts: %w", Cause(err))
	}

	return hosts, nil
}

// Boolean is a Boolean of Proxmox' API: a number, a string or null.
type Boolean bool

// UnmarshalJSON implements json.Unmarshaler.
func (b *Boolean) UnmarshalJSON(text []byte) error {
	*b = Boolean(!slices.Contains([]string{"0", `"0"`, `""`, "null", "false"}, string(text)))

	return nil
}

// Quorate reports whether Proxmox' cluster has quorum, as a single host always has. It needs Sys.Audit on /.
func Quorate(ctx context.Context, get Get) (bool, error) {
	var entries []struct {
		Type    string  `json:"type"`
		Quorate Boolean `json:"quorate"`
	}
	if err := get(ctx, "/cluster/status", &entries); err != nil {
		return false, Cause(err)
	}

	for _, entry := range entries {
		if entry.Type == "cluster" {
			return bool(entry.Quorate), nil
		}
	}

	return true, nil
}
