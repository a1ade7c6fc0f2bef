package preflight

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"talos-proxmox/internal/proxmoxapi"
)

// readFirewall reads what Proxmox' firewall in front of machines needs of the data centre's.
func (r *reader) readFirewall(ctx context.Context) {
	if len(r.Plan.ProxmoxFirewalls()) == 0 {
		return
	}

	get(ctx, r, "whether the firewall of the data centre is on", proxmoxapi.PathFirewallOptions,
		func(s *Site, options proxmoxapi.FirewallOptions) { s.Firewall = new(options.IsOn()) })
	get(ctx, r, "which security groups there are", proxmoxapi.PathSecurityGroups,
		func(s *Site, groups []proxmoxapi.SecurityGroup) { s.SecurityGroups = groups })
}

// checkFirewall reports a firewall in front of machines without effect, and security groups that do not exist, which
// Proxmox ignores.
func (c *checker) checkFirewall() {
	all := c.plan.ProxmoxFirewalls()

	for _, path := range slices.Sorted(maps.Keys(all)) {
		if on := c.site.Firewall; on != nil && !*on {
			c.warn("", path, nil, "has no effect, because the firewall of the data centre is off. No run switches it on, because it closes "+
				"the hosts' own ports as well; the commands are in docs/networking.md#proxmox-firewall")
		}

		for i, group := range all[path] {
			if c.site.SecurityGroups != nil && !slices.Contains(c.site.SecurityGroups, proxmoxapi.SecurityGroup{Name: group}) {
				c.problem("", fmt.Sprintf("%s.securityGroups[%d]", path, i), group, "does not exist; use one that "+
					"`pvesh get /cluster/firewall/groups` shows, or create it: `pvesh create /cluster/firewall/groups --group %s`", group)
			}
		}
	}
}
