package server

import (
	"fmt"
	"slices"

	"talos-proxmox/internal/permissions"
	"talos-proxmox/lab/datacentre"
)

// GrantProgram makes the roles, the user and the separated token that the program works with, as docs/permissions.md
// tells an administrator to.
func GrantProgram(data *datacentre.Datacentre, secret string) error {
	data.PutUser(datacentre.User{ID: permissions.User, Comment: "talos-proxmox"})
	data.PutToken(datacentre.Token{ID: permissions.Token, Secret: secret, Separated: true})

	if _, exists := data.Groups()[permissions.Group]; !exists {
		data.PutGroup(datacentre.Group{ID: permissions.Group})
	}

	known := data.Roles()

	for _, role := range slices.Concat(permissions.Roles(), permissions.KubernetesRoles()) {
		privileges := role.PrivilegesOn(data.Release())

		put := func() error { return data.AddRole(role.ID, privileges...) }
		if _, exists := known[role.ID]; exists {
			put = func() error { return data.SetRole(role.ID, false, privileges...) }
		}

		if err := put(); err != nil {
			return fmt.Errorf("unable to make the role %s: %w", role.ID, err)
		}

		if slices.ContainsFunc(permissions.KubernetesRoles(), func(k permissions.Role) bool { return k.ID == role.ID }) {
			continue // the program gives it to others
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
