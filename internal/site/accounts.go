package site

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/internal/permissions"
	"talos-proxmox/internal/spec"
)

// accounts are the clusters whose software gets accounts on Proxmox, by path: clusters[0].
func (w work) accounts(plan *spec.Plan) map[string]spec.Cluster {
	found := map[string]spec.Cluster{}

	for i, c := range plan.Clusters {
		if c.Proxmox == nil || c.Proxmox.CSI == nil && c.Proxmox.CloudController == nil {
			continue
		}

		at := fmt.Sprintf("clusters[%d]", i)

		for _, m := range w.machines {
			if m.Cluster == c.Name {
				at = m.at
			}
		}

		found[at] = c
	}

	return found
}

// admits says whether a machine's cluster has accounts that are let onto it.
func (j *judge) admits(m machine) bool {
	for _, c := range j.work.accounts(j.plan) {
		if c.Name == m.Cluster {
			return true
		}
	}

	return false
}

// onAccounts is where the clusters' accounts are made: nowhere, without any.
func (j *judge) onAccounts(path, privilege string, which func(spec.Cluster) bool) []need {
	for _, c := range j.work.accounts(j.plan) {
		if which(c) {
			return []need{{privileges: []string{privilege}, path: path}}
		}
	}

	return nil
}

// onClasses is on the datastores of storage classes.
func (j *judge) onClasses(privilege string) []need {
	var needs []need

	for _, c := range j.work.accounts(j.plan) {
		for _, datastore := range c.Proxmox.Datastores() {
			needs = append(needs, need{privileges: []string{privilege}, path: "/storage/" + datastore})
		}
	}

	return needs
}

func anyAccount(spec.Cluster) bool      { return true }
func makesRoles(c spec.Cluster) bool    { return !c.Proxmox.ExistingRoles }
func existingRoles(c spec.Cluster) bool { return c.Proxmox.ExistingRoles }

// classes judges the datastores of storage classes: a pod whose host lacks one gets no volume there.
func (j *judge) classes() {
	for _, c := range j.work.accounts(j.plan) {
		hosts := j.hostsOf(c.Name)

		for _, class := range c.Proxmox.StorageClasses {
			path := class.Path + ".datastore"

			var lack, have []string

			for _, name := range hosts {
				h := j.site.host(name)
				if h.Storages == nil {
					continue
				}

				s, found := h.storage(class.Datastore)
				if found && s.Enabled != 0 && !slices.Contains(s.contents(), contentImages) {
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

// hostsOf are the hosts of a cluster's machines, sorted.
func (j *judge) hostsOf(cluster string) []string {
	var hosts []string

	for _, m := range j.work.machines {
		if m.Cluster == cluster {
			hosts = append(hosts, m.Host)
		}
	}

	slices.Sort(hosts)

	return slices.Compact(hosts)
}

// askAccounts asks for the group that accounts are in, and for roles that are to be there already. Proxmox shows a
// group to those who may change its users.
func (a *asker) askAccounts(ctx context.Context) {
	accounts := a.work.accounts(a.Plan)
	if len(accounts) == 0 {
		return
	}

	var groups []struct {
		ID string `json:"groupid"`
	}

	if rights := a.site.Rights; rights.Has("/access/groups/"+permissions.Group, "User.Modify") {
		err := a.Proxmox.Get(ctx, "/access/groups", &groups)
		a.note("which groups there are", err, func(s *Site) {
			s.Groups = []string{}
			for _, g := range groups {
				s.Groups = append(s.Groups, g.ID)
			}
		})
	}

	for _, c := range accounts {
		if !existingRoles(c) {
			continue
		}

		var roles []struct {
			ID         string `json:"roleid"`
			Privileges string `json:"privs"`
		}

		err := a.Proxmox.Get(ctx, "/access/roles", &roles)
		a.note("which roles there are", err, func(s *Site) {
			s.Roles = map[string][]string{}
			for _, r := range roles {
				s.Roles[r.ID] = strings.Split(r.Privileges, ",")
			}
		})

		return
	}
}

// accounts judges what the clusters' accounts need that is not made with them.
func (j *judge) accounts() {
	for at, c := range j.work.accounts(j.plan) {
		if j.site.Groups != nil && !slices.Contains(j.site.Groups, permissions.Group) {
			j.problem("", at+".proxmox", nil, "needs the group %s on Proxmox, which its accounts are in: as root on a host, "+
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
				j.problem("", at+".proxmox.roles", "existing", "needs the role %s with %s on Proxmox: as root on a host, "+
					"`%s` makes it", role.ID, strings.Join(lack, ", "), role.Command())
			}
		}
	}
}
