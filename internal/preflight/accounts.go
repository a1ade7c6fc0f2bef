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

// addAccount notes the cluster of a machine where it gets accounts.
func (w *work) addAccount(m spec.Member) {
	c := m.Of
	if c == nil || c.Proxmox == nil || c.Proxmox.CSI == nil && c.Proxmox.CloudController == nil {
		return
	}

	i := slices.IndexFunc(w.accounts, func(a account) bool { return a.Cluster == c })
	if i < 0 {
		i = len(w.accounts)
		w.accounts = append(w.accounts, account{Cluster: c, path: m.Parent()})
	}

	a := &w.accounts[i]
	a.hosts = append(a.hosts, m.Host)
	slices.Sort(a.hosts)
	a.hosts = slices.Compact(a.hosts)
}

// admits says whether a machine's cluster has accounts that are let onto it.
func (w work) admits(m machine) bool {
	return slices.ContainsFunc(w.accounts, func(a account) bool { return a.Cluster == m.Of })
}

// onAccounts is where the clusters' accounts are made: nowhere, without any.
func (j *judge) onAccounts(path, privilege string, which func(account) bool) []need {
	if slices.ContainsFunc(j.work.accounts, which) {
		return []need{{privileges: []string{privilege}, path: path}}
	}

	return nil
}

func anyAccount(account) bool      { return true }
func makesRoles(a account) bool    { return !a.Proxmox.ExistingRoles }
func existingRoles(a account) bool { return a.Proxmox.ExistingRoles }

// classes judges the datastores of storage classes: a pod whose host lacks one gets no volume there.
func (j *judge) classes() {
	for _, c := range j.work.accounts {
		for _, class := range c.Proxmox.StorageClasses {
			path := class.Path + ".datastore"

			var lack, have []string

			for _, name := range c.hosts {
				h := j.site.host(name)
				if h.Storages == nil {
					continue
				}

				s, found := h.storage(class.Datastore)
				if found && s.Enabled != 0 && !slices.Contains(s.Contents(), contentImages) {
					j.absentClass(path, class.Datastore, h, name)
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
				j.problem(lack[0], path, class.Datastore, "is not a storage of any host of cluster %s (%s; for images %s has %s): "+
					"correct the name, or add it with `pvesm add`", c.Name, strings.Join(lack, ", "), lack[0],
					j.site.host(lack[0]).offer(contentImages))
			default:
				j.warn(lack[0], path, class.Datastore, "is not on %s, where cluster %s has machines: pods there get no volume of "+
					"storage class %s", strings.Join(lack, ", "), c.Name, class.Name)
			}
		}
	}
}

func (j *judge) absentClass(path, datastore string, h *Host, host string) {
	j.problem(host, path, datastore, "takes no content of type %s on %s: choose another of %s, or `pvesm set %s "+
		"--content` with %[1]s", contentImages, host, h.offer(contentImages), datastore)
}

// askAccounts asks for the group that accounts are in, and for roles that are to be there already. Proxmox shows a
// group to those who may change its users.
func (a *asker) askAccounts(ctx context.Context) {
	accounts := a.work.accounts
	if len(accounts) == 0 {
		return
	}

	if rights := a.site.Rights; rights.Has("/access/groups/"+permissions.Group, "User.Modify") {
		ask(ctx, a, "which groups there are", "/access/groups", func(s *Site, groups []struct {
			ID string `json:"groupid"`
		},
		) {
			s.Groups = []string{}
			for _, g := range groups {
				s.Groups = append(s.Groups, g.ID)
			}
		})
	}

	if slices.ContainsFunc(accounts, existingRoles) {
		ask(ctx, a, "which roles there are", proxmoxapi.PathRoles, func(s *Site, roles []proxmoxapi.Role) {
			s.Roles = map[string][]string{}
			for _, r := range roles {
				s.Roles[r.ID] = strings.Split(r.Privileges, ",")
			}
		})
	}
}

// accounts judges what the clusters' accounts need that is not made with them.
func (j *judge) accounts() {
	for _, c := range j.work.accounts {
		if j.site.Groups != nil && !slices.Contains(j.site.Groups, permissions.Group) {
			j.problem("", c.path+".proxmox", nil, "needs the group %s on Proxmox, which its accounts are in: as root on a host, "+
				"`pveum group add %[1]s` makes it (docs/permissions.md)", permissions.Group)
		}

		if j.site.Roles == nil || !existingRoles(c) {
			continue
		}

		for _, role := range permissions.KubernetesRoles() {
			has := j.site.Roles[role.ID]

			var lack []string

			for _, p := range role.Privileges() {
				if !slices.Contains(has, p) {
					lack = append(lack, p)
				}
			}

			if len(lack) > 0 {
				j.problem("", c.path+".proxmox.roles", "existing", "needs the role %s with %s on Proxmox: as root on a host, "+
					"`%s` makes it", role.ID, strings.Join(lack, ", "), role.Command(j.site.major()))
			}
		}
	}
}
