package recovery

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/tokens"
)

// entry is a part of Proxmox' configuration that the killed run was creating and that makes a second creation fail: a
// mapping, or a role, user or token of a cluster's software. ACL rules are not entries: they can be set twice.
type entry struct {
	resource string
	kind     entryKind
	name     string // as Proxmox lists it: rtx4000, talos-prod-csi@pve!kubernetes-1
	// remark is the comment; for a role, which has none, its privileges.
	remark string
}

// entryKind is the kind as messages print it.
type entryKind string

const (
	kindPCIMapping entryKind = "PCI mapping"
	kindUSBMapping entryKind = "USB mapping"
	kindRole       entryKind = "role"
	kindUser       entryKind = "user"
	kindToken      entryKind = "token"
)

// String returns kind and name, such as "user talos-prod-csi@pve".
func (e entry) String() string { return string(e.kind) + " " + e.name }

// path returns the entry's path in Proxmox' API.
func (e entry) path() string {
	switch e.kind {
	case kindPCIMapping:
		return proxmoxapi.PathPCIMappings + "/" + url.PathEscape(e.name)
	case kindUSBMapping:
		return proxmoxapi.PathUSBMappings + "/" + url.PathEscape(e.name)
	case kindRole:
		return proxmoxapi.PathRoles + "/" + url.PathEscape(e.name)
	case kindToken:
		user, token, _ := strings.Cut(e.name, "!")

		return "/access/users/" + url.PathEscape(user) + "/token/" + url.PathEscape(token)
	default:
		return "/access/users/" + url.PathEscape(e.name)
	}
}

// parseEntry reads an entry from a resource's inputs.
func parseEntry(resource apitype.ResourceV3) (entry, bool) {
	var inputs struct {
		Name, Comment, TokenName string
		UserID                   string `json:"userId"`
		RoleID                   string `json:"roleId"`
		Privileges               []string
	}
	if decode(resource.Inputs, &inputs) != nil {
		return entry{}, false
	}

	e := entry{resource: resource.URN.Name(), remark: inputs.Comment}

	switch string(resource.Type) {
	case tokens.PCIMapping:
		e.kind, e.name = kindPCIMapping, inputs.Name
	case tokens.USBMapping:
		e.kind, e.name = kindUSBMapping, inputs.Name
	case tokens.Role:
		e.kind, e.name, e.remark = kindRole, inputs.RoleID, joinPrivileges(inputs.Privileges)
	case tokens.User:
		e.kind, e.name = kindUser, inputs.UserID
	case tokens.UserToken:
		e.kind, e.name = kindToken, inputs.UserID+"!"+inputs.TokenName
	}

	return e, e.name != ""
}

func joinPrivileges(list []string) string {
	return strings.Join(slices.Sorted(slices.Values(list)), ",")
}

// existingEntries returns the remarks of Proxmox' entries of the kinds that the killed run was creating, by
// entry.String.
func (r *recovery) existingEntries(ctx context.Context) (map[string]string, error) {
	found := map[string]string{}

	for kind, list := range map[entryKind]func(context.Context, map[string]string) error{
		kindPCIMapping: r.listMappings(kindPCIMapping, proxmoxapi.PathPCIMappings),
		kindUSBMapping: r.listMappings(kindUSBMapping, proxmoxapi.PathUSBMappings),
		kindRole:       r.listRoles, kindUser: r.listUsers, kindToken: r.listUsers,
	} {
		if !slices.ContainsFunc(r.entries, func(e entry) bool { return e.kind == kind }) {
			continue
		}

		if err := list(ctx, found); err != nil {
			return nil, fmt.Errorf("unable to list Proxmox' %ss: %w", kind, proxmoxapi.Cause(err))
		}
	}

	return found, nil
}

func (r *recovery) listMappings(kind entryKind, path string) func(context.Context, map[string]string) error {
	return func(ctx context.Context, found map[string]string) error {
		var list []proxmoxapi.Mapping

		err := r.api.Get(ctx, path, &list)
		for _, m := range list {
			found[entry{kind: kind, name: m.Name}.String()] = strings.TrimSpace(m.Comment)
		}

		return err
	}
}

func (r *recovery) listUsers(ctx context.Context, found map[string]string) error {
	var list []proxmoxapi.User

	err := r.api.Get(ctx, proxmoxapi.PathUsers, &list)
	for _, u := range list {
		found[entry{kind: kindUser, name: u.ID}.String()] = u.Comment
		for _, t := range u.Tokens {
			found[entry{kind: kindToken, name: u.ID + "!" + t.ID}.String()] = t.Comment
		}
	}

	return err
}

// roleInUse replaces the remark of a role that an ACL rule grants.
const roleInUse = "in use"

func (r *recovery) listRoles(ctx context.Context, found map[string]string) error {
	var list []proxmoxapi.Role

	var rules []struct {
		Role string `json:"roleid"`
	}

	err := errors.Join(r.api.Get(ctx, proxmoxapi.PathRoles, &list), r.api.Get(ctx, "/access/acl", &rules))
	for _, role := range list {
		found[entry{kind: kindRole, name: role.ID}.String()] = joinPrivileges(strings.Split(role.Privileges, ","))
	}

	for _, rule := range rules {
		found[entry{kind: kindRole, name: rule.Role}.String()] = roleInUse
	}

	return err
}

// foreignEntryReason says why an entry is not provably the one that the killed run was creating; empty if it is.
func (r *recovery) foreignEntryReason(e entry, remark string) string {
	if e.kind == kindRole {
		switch remark {
		case e.remark:
			return ""
		case roleInUse:
			return "somebody has it"
		default:
			return "its privileges are not those that this stack gives it"
		}
	}

	owner, marked := ownership.OwnerOf(remark)
	switch {
	case !marked:
		return "its comment does not say that this stack made it"
	case !owner.Matches(r.owner):
		return r.foreignOwnerReason(owner)
	case remark != e.remark:
		return "its comment is not the one that this stack gives it"
	default:
		return ""
	}
}

// describeEntryOutcome says what recovery does with an entry.
func (r *recovery) describeEntryOutcome(e entry, found map[string]string) string {
	remark, exists := found[e.String()]
	if !exists {
		return e.String() + " is not there, or not yet"
	}

	if why := r.foreignEntryReason(e, remark); why != "" {
		return e.String() + " is left alone: " + why
	}

	return e.String() + " is removed"
}

// removeEntries removes the entries of pending creations, and reports what it leaves alone. Nothing uses them yet: the
// stack creates machines after their mappings, and ACL rules after their roles, users and tokens.
func (r *recovery) removeEntries(ctx context.Context) error {
	found, err := r.existingEntries(ctx)
	if err != nil {
		return err
	}

	var problems []error

	for _, e := range r.entries {
		remark, exists := found[e.String()]
		if !exists {
			continue
		}

		if r.foreignEntryReason(e, remark) == "" {
			if err := r.api.Delete(ctx, e.path(), nil); err != nil {
				problems = append(problems, fmt.Errorf("unable to remove %s: %w", e, proxmoxapi.Cause(err)))

				continue
			}
		}

		r.printf("%s", r.describeEntryOutcome(e, found))
	}

	return errors.Join(problems...)
}
