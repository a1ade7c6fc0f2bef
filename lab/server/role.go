package server

import (
	"fmt"
	"slices"

	"talos-proxmox/internal/permissions"
	"talos-proxmox/lab/datacentre"
)

// GrantProgram creates the roles, the user and the separated token of the program, as docs/permissions.md describes.
func GrantProgram(data *datacentre.Datacentre, secret string) error {
	data.Put(datacentre.Users, permissions.User, datacentre.Config{"comment": "talos-proxmox"})
	data.Put(datacentre.Tokens, permissions.Token, datacentre.Config{"value": secret})

	if _, exists := data.Record(datacentre.Groups, permissions.Group); !exists {
		data.Put(datacentre.Groups, permissions.Group, nil)
	}

	for _, role := range slices.Concat(permissions.Roles(), permissions.KubernetesRoles()) {
		if err := data.PutRole(role.ID, role.PrivilegesOn(data.Release())...); err != nil {
			return fmt.Errorf("unable to create the role %s: %w", role.ID, err)
		}

		if slices.ContainsFunc(permissions.KubernetesRoles(), func(k permissions.Role) bool { return k.ID == role.ID }) {
			continue // the program assigns it to accounts of its clusters
		}

		for _, path := range role.Paths() {
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
