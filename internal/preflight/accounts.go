package preflight

import (
	"context"
	"slices"
	"strings"

	"talos-proxmox/internal/permissions"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/spec"
)

// account is a cluster whose software gets accounts on Proxmox.
type account struct {
	*spec.Cluster

	path  string   // clusters[0]
	hosts []string // of its machines, sorted
}

// addAccount adds the cluster of a machine if it has accounts.
func (p *planned) addAccount(m spec.Member) {
	c := m.Of
	if c == nil || c.Proxmox == nil || c.Proxmox.CSI == nil && c.Proxmox.CloudController == nil {
		return
	}

	i := slices.IndexFunc(p.accounts, func(a account) bool { return a.Cluster == c })
	if i < 0 {
		i = len(p.accounts)
		p.accounts = append(p.accounts, account{Cluster: c, path: m.Parent()})
	}

	a := &p.accounts[i]
	a.hosts = append(a.hosts, m.Host)
	slices.Sort(a.hosts)
	a.hosts = slices.Compact(a.hosts)
}

// hasAccounts reports whether a machine's cluster has accounts, which get privileges on the machine.
func (p planned) hasAccounts(m machine) bool {
	return slices.ContainsFunc(p.accounts, func(a account) bool { return a.Cluster == m.Of })
}

// needsForAccounts returns the need on a path if a cluster's accounts match.
func (c *checker) needsForAccounts(path, privilege string, match func(account) bool) []need {
	if slices.ContainsFunc(c.planned.accounts, match) {
		return []need{{privileges: []string{privilege}, path: path}}
	}

	return nil
}

func anyAccount(account) bool          { return true }
func createsRoles(a account) bool      { return !a.Proxmox.ExistingRoles }
func usesExistingRoles(a account) bool { return a.Proxmox.ExistingRoles }

// checkStorageClasses checks the datastores of storage classes: pods get no volume on a host without the datastore.
func (c *checker) checkStorageClasses() {
	for _, a := range c.planned.accounts {
		for _, class := range a.Proxmox.StorageClasses {
			path := class.Path + ".datastore"

			var lack, have []string

			for _, name := range a.hosts {
				h := c.site.host(name)
				if h.Storages == nil {
					continue
				}

				s, found := h.storage(class.Datastore)
				if found && s.Enabled != 0 && !slices.Contains(s.Contents(), contentImages) {
					c.reportContentType(path, class.Datastore, h, name)
				}

				if found && s.Enabled != 0 {
					have = append(have, name)
				} else {
					lack = append(lack, name)
				}
			}

			switch {
			case len(lack) == 0:
			case len(have) == 0:
				c.problem(lack[0], path, class.Datastore, "is not a storage of any host of cluster %s (%s; for images %s has %s): "+
					"correct the name, or add it with `pvesm add`", a.Name, strings.Join(lack, ", "), lack[0],
					c.site.host(lack[0]).storageList(contentImages))
			default:
				c.warn(lack[0], path, class.Datastore, "is not on %s, where cluster %s has machines: pods there get no volume of "+
					"storage class %s", strings.Join(lack, ", "), a.Name, class.Name)
			}
		}
	}
}

func (c *checker) reportContentType(path, datastore string, h *Host, host string) {
	c.problem(host, path, datastore, "takes no content of type %s on %s: choose another of %s, or `pvesm set %s "+
		"--content` with %[1]s", contentImages, host, h.storageList(contentImages), datastore)
}

// readAccounts reads the groups. Proxmox shows a group to those who may change its users.
func (r *reader) readAccounts(ctx context.Context) {
	if len(r.planned.accounts) == 0 {
		return
	}

	if rights := r.site.Rights; rights.Has("/access/groups/"+permissions.Group, "User.Modify") {
		get(ctx, r, "which groups there are", "/access/groups", func(s *Site, groups []struct {
			ID string `json:"groupid"`
		},
		) {
			s.Groups = []string{}
			for _, g := range groups {
				s.Groups = append(s.Groups, g.ID)
			}
		})
	}
}

// readRoles reads the roles if some have to exist already.
func (r *reader) readRoles(ctx context.Context) {
	if !slices.ContainsFunc(r.planned.accounts, usesExistingRoles) && len(autoscaledPools(r.Plan)) == 0 {
		return
	}

	r.listRoles(ctx)
}

func (r *reader) listRoles(ctx context.Context) {
	get(ctx, r, "which roles there are", proxmoxapi.PathRoles, func(s *Site, roles []proxmoxapi.Role) {
		s.Roles = map[string][]string{}
		for _, r := range roles {
			s.Roles[r.ID] = strings.Split(r.Privileges, ",")
		}
	})
}

// checkAccounts checks for the group and the existing roles that the clusters' accounts need.
func (c *checker) checkAccounts() {
	for _, a := range c.planned.accounts {
		if c.site.Groups != nil && !slices.Contains(c.site.Groups, permissions.Group) {
			c.problem("", a.path+".proxmox", nil, "needs the group %s on Proxmox, which its accounts are in: as root on a host, "+
				"`pveum group add %[1]s` makes it (docs/permissions.md)", permissions.Group)
		}

		if !usesExistingRoles(a) {
			continue
		}

		for _, role := range permissions.KubernetesRoles() {
			c.checkRole(a.path+".proxmox.roles", "existing", role)
		}
	}
}

// checkRole checks that a role exists with its privileges, unless the roles are unknown. It returns false if not.
func (c *checker) checkRole(path string, value any, role permissions.Role) bool {
	var lack []string

	for _, p := range role.Privileges() {
		if c.site.Roles != nil && !slices.Contains(c.site.Roles[role.ID], p) {
			lack = append(lack, p)
		}
	}

	if len(lack) > 0 {
		c.problem("", path, value, "needs the role %s with %s on Proxmox: as root on a host, `%s` makes it",
			role.ID, strings.Join(lack, ", "), role.Command(c.site.major()))
	}

	return len(lack) == 0
}
