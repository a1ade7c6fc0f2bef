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

// entry is one of Proxmox' configuration that the killed run was making, and that a second creation finds in its way:
// a PCI mapping, or an account of a cluster's software. Rules are none: making them again is nothing.
type entry struct {
	resource string
	kind     entryKind
	name     string // as Proxmox lists it: rtx4000, talos-prod-csi@pve!kubernetes-1
	// remark is its comment; of a role, which has none, its privileges.
	remark string
}

// entryKind is what people call it.
type entryKind string

const (
	kindMapping entryKind = "PCI mapping"
	kindRole    entryKind = "role"
	kindUser    entryKind = "user"
	kindToken   entryKind = "token"
)

// String is user talos-prod-csi@pve.
func (e entry) String() string { return string(e.kind) + " " + e.name }

// path leads to it in Proxmox' API.
func (e entry) path() string {
	switch e.kind {
	case kindMapping:
		return proxmoxapi.PathMappings + "/" + url.PathEscape(e.name)
	case kindRole:
		return proxmoxapi.PathRoles + "/" + url.PathEscape(e.name)
	case kindToken:
		user, token, _ := strings.Cut(e.name, "!")

		return "/access/users/" + url.PathEscape(user) + "/token/" + url.PathEscape(token)
	default:
		return "/access/users/" + url.PathEscape(e.name)
	}
}

// entryOf reads what a resource's inputs make.
func entryOf(resource apitype.ResourceV3) (entry, bool) {
	var inputs struct {
		Name, Comment, TokenName string
		UserID                   string `json:"userId"`
		RoleID                   string `json:"roleId"`
		Privileges               []string
	}
	if decode(resource.Inputs, &inputs) != nil {
		return entry{}, false
	}

	made := entry{resource: resource.URN.Name(), remark: inputs.Comment}

	switch string(resource.Type) {
	case tokens.PCIMapping:
		made.kind, made.name = kindMapping, inputs.Name
	case tokens.Role:
		made.kind, made.name, made.remark = kindRole, inputs.RoleID, privileges(inputs.Privileges)
	case tokens.User:
		made.kind, made.name = kindUser, inputs.UserID
	case tokens.UserToken:
		made.kind, made.name = kindToken, inputs.UserID+"!"+inputs.TokenName
	}

	return made, made.name != ""
}

func privileges(list []string) string { return strings.Join(slices.Sorted(slices.Values(list)), ",") }

// foundEntries are the remarks of what Proxmox has of the kinds that the killed run was making.
func (r *recovery) foundEntries(ctx context.Context) (map[string]string, error) {
	found := map[string]string{}

	for kind, list := range map[entryKind]func(context.Context, map[string]string) error{
		kindMapping: r.listMappings, kindRole: r.listRoles, kindUser: r.listUsers, kindToken: r.listUsers,
	} {
		if !slices.ContainsFunc(r.entries, func(e entry) bool { return e.kind == kind }) {
			continue
		}

		if err := list(ctx, found); err != nil {
			return nil, fmt.Errorf("unable to list Proxmox's %ss: %w", kind, proxmoxapi.Said(err))
		}
	}

	return found, nil
}

func (r *recovery) listMappings(ctx context.Context, found map[string]string) error {
	var list []proxmoxapi.Mapping

	err := r.api.Get(ctx, proxmoxapi.PathMappings, &list)
	for _, m := range list {
		found[entry{kind: kindMapping, name: m.Name}.String()] = strings.TrimSpace(m.Comment)
	}

	return err
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

// inUse is the remark of a role that somebody has.
const inUse = "in use"

func (r *recovery) listRoles(ctx context.Context, found map[string]string) error {
	var list []proxmoxapi.Role

	var rules []struct {
		Role string `json:"roleid"`
	}

	err := errors.Join(r.api.Get(ctx, proxmoxapi.PathRoles, &list), r.api.Get(ctx, "/access/acl", &rules))
	for _, role := range list {
		found[entry{kind: kindRole, name: role.ID}.String()] = privileges(strings.Split(role.Privileges, ","))
	}

	for _, rule := range rules {
		found[entry{kind: kindRole, name: rule.Role}.String()] = inUse
	}

	return err
}

// foreignEntry says why an entry is not provably the one that the killed run was making; empty = it is.
func (r *recovery) foreignEntry(made entry, remark string) string {
	if made.kind == kindRole {
		switch remark {
		case made.remark:
			return ""
		case inUse:
			return "somebody has it"
		default:
			return "its privileges are not those that this stack gives it"
		}
	}

	owner, marked := ownership.OwnerOf(remark)
	switch {
	case !marked:
		return "its comment does not say that this stack made it"
	case !owner.Is(r.owner):
		return r.anothers(owner)
	case remark != made.remark:
		return "its comment is not the one that this stack gives it"
	default:
		return ""
	}
}

// prospectOf says what becomes of an entry that a creation made.
func (r *recovery) prospectOf(made entry, found map[string]string) string {
	remark, there := found[made.String()]
	if !there {
		return made.String() + " is not there, or not yet"
	}

	if why := r.foreignEntry(made, remark); why != "" {
		return made.String() + " is left alone: " + why
	}

	return made.String() + " is removed"
}

// removeEntries removes those that the pending creations made, and names what it leaves alone. Nothing uses them: the
// stack makes machines after their mappings, and rules after their roles, users and tokens.
func (r *recovery) removeEntries(ctx context.Context) error {
	found, err := r.foundEntries(ctx)
	if err != nil {
		return err
	}

	var problems []error

	for _, made := range r.entries {
		remark, there := found[made.String()]
		if !there {
			continue
		}

		if r.foreignEntry(made, remark) == "" {
			if err := r.api.Delete(ctx, made.path(), nil); err != nil {
				problems = append(problems, fmt.Errorf("unable to remove %s: %w", made, proxmoxapi.Said(err)))

				continue
			}
		}

		r.printf("%s", r.prospectOf(made, found))
	}

	return errors.Join(problems...)
}
