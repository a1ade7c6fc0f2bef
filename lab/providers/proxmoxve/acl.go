package proxmoxve

import (
	"context"
	"fmt"
	"maps"
)

const typeACL = "proxmoxve:index/acl:Acl"

// aclType is the resource of access rules: a role of a user, group or token on a path.
func aclType() *resourceType {
	return &resourceType{
		token: typeACL, attributes: acl(), framework: true, checkMore: checkACL,
		create: createACL, read: readACL, update: updateACL, remove: removeACL,
	}
}

func acl() attributes {
	return attributes{
		"groupId":   {exact: true, effect: replace},
		"path":      {required: true, effect: replace},
		"propagate": {kind: boolean, fallback: true, effect: inPlace},
		"roleId":    {required: true, effect: replace},
		"tokenId":   {exact: true, effect: replace},
		"userId":    {exact: true, effect: replace},
	}
}

// aclHolders are the properties that name who has the role, with Proxmox' parameter and type of each.
var aclHolders = []struct{ property, param, kind string }{
	{"groupId", "groups", "group"}, {"tokenId", "tokens", "token"}, {"userId", "users", "user"},
}

// checkACL wants one holder at most; without one it is Proxmox that refuses, as published.
func checkACL(c *checker, in object) {
	var stated []string

	for _, holder := range aclHolders {
		if _, known := in[holder.property].(string); known {
			stated = append(stated, holder.property)
		}
	}

	if len(stated) > 1 {
		c.fail(stated[0], "These attributes cannot be configured together: [group_id,token_id,user_id]")
	}
}

func putACL(ctx context.Context, a *api, values object, remove bool) error {
	whom := form{}

	for _, holder := range aclHolders {
		if id, stated := values[holder.property].(string); stated {
			whom[holder.param] = id
		}
	}

	if err := putRule(ctx, a, values, remove, whom); err != nil {
		return fmt.Errorf("API call failed: %w", err)
	}

	return nil
}

func createACL(ctx context.Context, a *api, plan object) (string, object, error) {
	if err := putACL(ctx, a, plan, false); err != nil {
		return "", nil, fmt.Errorf("Unable to create ACL: %w", err) //nolint:revive,staticcheck // published words
	}

	return str(plan, "path") + "?" + str(plan, "groupId") + str(plan, "tokenId") + str(plan, "userId") + "?" +
		str(plan, "roleId"), plan, nil
}

// readACL compares paths as they are written: a rule whose path Proxmox writes in another way counts as gone, as
// published.
func readACL(ctx context.Context, a *api, _ string, before object) (object, error) {
	rules, err := listRules(ctx, a)
	if err != nil {
		return nil, fmt.Errorf("Unable read ACL: API call failed: %w", err) //nolint:revive,staticcheck // published words
	}

	for _, r := range rules {
		if r.Path != str(before, "path") || r.Role != str(before, "roleId") {
			continue
		}

		for _, holder := range aclHolders {
			if r.Kind == holder.kind && r.ID == str(before, holder.property) {
				state := maps.Clone(before)
				state["propagate"] = r.Propagate == nil || *r.Propagate == 1

				return state, nil
			}
		}
	}

	return nil, nil
}

// updateACL takes the rule away before it adds it again: for a moment there is none, as published.
func updateACL(ctx context.Context, a *api, _ string, plan, state object) (object, error) {
	if err := putACL(ctx, a, state, true); err != nil {
		return nil, fmt.Errorf("Unable to delete old ACL: %w", err) //nolint:revive,staticcheck // published words
	}

	if err := putACL(ctx, a, plan, false); err != nil {
		return nil, fmt.Errorf("Unable to create ACL: %w", err) //nolint:revive,staticcheck // published words
	}

	return plan, nil
}

func removeACL(ctx context.Context, a *api, _ string, state object) error {
	if err := putACL(ctx, a, state, true); err != nil {
		return fmt.Errorf("Unable to delete old ACL: %w", err) //nolint:revive,staticcheck // published words
	}

	return nil
}
