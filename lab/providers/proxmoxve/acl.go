package proxmoxve

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
)

const (
	typeACL = "proxmoxve:index/acl:Acl"
	aclPath = "/access/acl"
)

// aclType returns the resource type of access rules: a role of a user, group or token on a path.
func aclType() *resourceType {
	return &resourceType{
		token: typeACL, framework: true, validate: checkACL,
		attributes: attributes{
			"groupId":   {exact: true, effect: Replace},
			"path":      {required: true, effect: Replace},
			"propagate": {kind: boolean, fallback: true, effect: InPlace},
			"roleId":    {required: true, effect: Replace},
			"tokenId":   {exact: true, effect: Replace},
			"userId":    {exact: true, effect: Replace},
		},
		create: func(ctx context.Context, a *api, plan object) (string, object, error) {
			if err := putACL(ctx, a, plan, false); err != nil {
				return "", nil, err
			}

			return str(plan, "path") + "?" + str(plan, "groupId") + str(plan, "tokenId") + str(plan, "userId") + "?" +
				str(plan, "roleId"), plan, nil
		},
		read: readACL,
		// As published, the rule is deleted before it is added again: for a moment there is none.
		update: func(ctx context.Context, a *api, _ string, plan, state object) (object, error) {
			if err := putACL(ctx, a, state, true); err != nil {
				return nil, err
			}

			return plan, putACL(ctx, a, plan, false)
		},
		remove: func(ctx context.Context, a *api, _ string, state object) error { return putACL(ctx, a, state, true) },
	}
}

// aclHolders are the properties that name the holder of a role, with Proxmox' parameter and type of each.
var aclHolders = []struct{ property, param, kind string }{
	{"groupId", "groups", "group"}, {"tokenId", "tokens", "token"}, {"userId", "users", "user"},
}

// checkACL allows at most one holder. Without one, Proxmox refuses, as published.
func checkACL(c *checker, in object) {
	var holders []string

	for _, holder := range aclHolders {
		if _, known := in[holder.property].(string); known {
			holders = append(holders, holder.property)
		}
	}

	if len(holders) > 1 {
		c.fail(holders[0], "These attributes cannot be configured together: [group_id,token_id,user_id]")
	}
}

// putACL adds or removes the rule of an Acl.
func putACL(ctx context.Context, a *api, values object, remove bool) error {
	holderParams, action := form{}, "create"
	if remove {
		action = "delete old"
	}

	for _, holder := range aclHolders {
		if id, ok := values[holder.property].(string); ok {
			holderParams[holder.param] = id
		}
	}

	if err := putRule(ctx, a, values, remove, holderParams); err != nil {
		//nolint:revive,staticcheck // published words
		return fmt.Errorf("Unable to %s ACL: API call failed: %w", action, err)
	}

	return nil
}

// readACL compares paths literally: a rule whose path Proxmox normalizes counts as deleted, as published.
func readACL(ctx context.Context, a *api, _ string, before object) (object, error) {
	rules, err := listRules(ctx, a)
	if err != nil {
		return nil, fmt.Errorf("Unable read ACL: API call failed: %w", err) //nolint:revive,staticcheck // published words
	}

	for _, r := range rules {
		for _, holder := range aclHolders {
			if r.Path == str(before, "path") && r.Role == str(before, "roleId") &&
				r.Kind == holder.kind && r.ID == str(before, holder.property) {
				state := maps.Clone(before)
				state["propagate"] = r.Propagate == 1

				return state, nil
			}
		}
	}

	return nil, nil
}

// rule is an entry of Proxmox' access control list.
type rule struct {
	Path      string `json:"path"`
	Role      string `json:"roleid"`
	Kind      string `json:"type"`
	ID        string `json:"ugid"`
	Propagate int    `json:"propagate"`
}

func listRules(ctx context.Context, a *api) ([]rule, error) {
	var found []rule
	if err := a.call(ctx, http.MethodGet, aclPath, nil, &found); err != nil {
		return nil, fmt.Errorf("failed to get access control list: %w", err)
	}

	slices.SortFunc(found, func(x, y rule) int { return cmp.Or(cmp.Compare(x.Path, y.Path), cmp.Compare(x.Role, y.Role)) })

	return found, nil
}

// putRule adds or removes a rule. holder has the parameter users, groups or tokens.
func putRule(ctx context.Context, a *api, entry object, remove bool, holder form) error {
	f := form{
		"path":      str(entry, "path"),
		"roles":     str(entry, "roleId"),
		"propagate": formatBool(flag(entry, "propagate")),
		"delete":    formatBool(remove),
	}
	maps.Copy(f, holder)

	if err := a.call(ctx, http.MethodPut, aclPath, f, nil); err != nil {
		return fmt.Errorf("failed to update access control list: %w", err)
	}

	return nil
}
