package preflight

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// readFirewall reads what Proxmox' firewall in front of machines needs of the data centre's, the options if the
// credentials may: the documented role does not need it.
func (r *reader) readFirewall(ctx context.Context) {
	if len(r.Plan.ProxmoxFirewalls()) == 0 {
		return
	}

	if r.site.Rights.Has("/", "Sys.Audit") {
		get(ctx, r, "whether the firewall of the data centre is on", "/cluster/firewall/options", func(s *Site, options struct {
			Enable int `json:"enable"`
		},
		) {
			s.Firewall = new(options.Enable > 0)
		})
	}

	get(ctx, r, "which security groups there are", "/cluster/firewall/groups", func(s *Site, list []struct {
		Name string `json:"group"`
	},
	) {
		s.SecurityGroups = []string{}
		for _, group := range list {
			s.SecurityGroups = append(s.SecurityGroups, group.Name)
		}
	})
}

// checkFirewall reports a firewall in front of machines without effect, and security groups that do not exist, which
// Proxmox ignores.
func (c *checker) checkFirewall() {
	all := c.plan.ProxmoxFirewalls()

	for _, path := range slices.Sorted(maps.Keys(all)) {
		switch on := c.site.Firewall; {
		case on == nil && c.site.Rights != nil:
			c.warn("", path, nil, "has no effect unless the firewall of the data centre is on, which %s may not see: give it Sys.Audit on / "+
				"(docs/permissions.md), or look with `pvesh get /cluster/firewall/options` as root on a host", c.site.Identity)
		case on != nil && !*on:
			c.warn("", path, nil, "has no effect, because the firewall of the data centre is off. No run switches it on, because it closes "+
				"the hosts' own ports as well; the commands are in docs/networking.md#proxmox-firewall")
		}

		for i, group := range all[path] {
			if c.site.SecurityGroups != nil && !slices.Contains(c.site.SecurityGroups, group) {
				c.problem("", fmt.Sprintf("%s.securityGroups[%d]", path, i), group, "does not exist; use one that "+
					"`pvesh get /cluster/firewall/groups` shows, or create it: `pvesh create /cluster/firewall/groups --group %s`", group)
			}
		}
	}
}
