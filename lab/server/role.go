package server

import (
	"fmt"
	"slices"

	"talos-proxmox/internal/permissions"
	"talos-proxmox/lab/datacentre"
)

// places returns what the program's roles are granted on: the data centre's storages by their content, the mappings of
// the documents, and these, which may be PCI or USB mappings.
func places(data *datacentre.Datacentre, mappings []string) permissions.Places {
	with := func(documented []string) []string {
		return slices.Compact(slices.Sorted(slices.Values(slices.Concat(documented, mappings))))
	}
	example := permissions.Example()
	p := permissions.Places{Mappings: with(example.Mappings), USBMappings: with(example.USBMappings)}

	for _, host := range data.Hosts() {
		for _, s := range host.Storages {
			if slices.Contains(s.Content, "iso") {
				p.Images = append(p.Images, s.Name)
			}

			if slices.Contains(s.Content, "images") {
				p.Disks, p.Volumes = append(p.Disks, s.Name), append(p.Volumes, s.Name)
			}
		}
	}

	return p
}

// GrantProgram creates the roles, the user and the separated token of the program, as docs/permissions.md describes,
// for stacks with these mappings beside those of the documents.
func GrantProgram(data *datacentre.Datacentre, secret string, mappings ...string) error {
	data.Put(datacentre.Users, permissions.User, datacentre.Config{"comment": "talos-proxmox"})
	data.Put(datacentre.Tokens, permissions.Token, datacentre.Config{"value": secret})

	if _, exists := data.Record(datacentre.Groups, permissions.Group); !exists {
		data.Put(datacentre.Groups, permissions.Group, nil)
	}

	software := slices.Concat(permissions.KubernetesRoles(), permissions.AutoscalerRoles())

	for _, role := range slices.Concat(permissions.Roles(), software) {
		if err := data.PutRole(role.ID, role.PrivilegesOn(data.Release())...); err != nil {
			return fmt.Errorf("unable to create the role %s: %w", role.ID, err)
		}

		if slices.ContainsFunc(software, func(k permissions.Role) bool { return k.ID == role.ID }) {
			continue // the program assigns it to accounts of its clusters, or an administrator does
		}

		for _, rule := range data.ACLs() { // of an earlier version
			if rule.Role == role.ID {
				if err := data.DeleteACL(rule); err != nil {
					return fmt.Errorf("unable to remove a rule of %s: %w", role.ID, err)
				}
			}
		}

		for _, path := range role.Paths(places(data, mappings)) {
			for kind, id := range map[string]string{"user": permissions.User, "token": permissions.Token} {
				rule := datacentre.ACL{Path: path, Kind: kind, ID: id, Role: role.ID, Propagate: permissions.Propagates(path)}
				if err := data.SetACL(rule); err != nil {
					return fmt.Errorf("unable to give %s the role %s on %s: %w", id, role.ID, path, err)
				}
			}
		}
	}

	return nil
}
