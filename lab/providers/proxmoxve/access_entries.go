package proxmoxve

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
)

const aclPath = "/access/acl"

// rule is an entry of Proxmox' access control list.
type rule struct {
	Path      string `json:"path"`
	Role      string `json:"roleid"`
	Kind      string `json:"type"`
	ID        string `json:"ugid"`
	Propagate *int   `json:"propagate"`
}

func listRules(ctx context.Context, a *api) ([]rule, error) {
	var found []rule
	if err := a.call(ctx, http.MethodGet, aclPath, nil, &found); err != nil {
		return nil, fmt.Errorf("failed to get access control list: %w", err)
	}

	return found, nil
}

// putRule adds a rule for whom a parameter names (users, groups or tokens), or removes it.
func putRule(ctx context.Context, a *api, entry object, remove bool, whom form) error {
	f := form{
		"path":      str(entry, "path"),
		"roles":     str(entry, "roleId"),
		"propagate": bit(flag(entry, "propagate")),
		"delete":    bit(remove),
	}
	for name, id := range whom {
		f[name] = id
	}

	if err := a.call(ctx, http.MethodPut, aclPath, f, nil); err != nil {
		return fmt.Errorf("failed to update access control list: %w", err)
	}

	return nil
}

// putEntries takes all old entries away and adds all new ones, whether they differ or not: as published.
func putEntries(ctx context.Context, a *api, before, after object, whom form) error {
	for _, entry := range children(before, "acls") {
		if err := putRule(ctx, a, entry, true, whom); err != nil {
			return err
		}
	}

	for _, entry := range children(after, "acls") {
		if err := putRule(ctx, a, entry, false, whom); err != nil {
			return err
		}
	}

	return nil
}

// readEntries are all rules of a user, those that other resources made included: as published.
func readEntries(ctx context.Context, a *api, user string) ([]any, error) {
	rules, err := listRules(ctx, a)
	if err != nil {
		return nil, err
	}

	slices.SortFunc(rules, func(x, y rule) int { return cmp.Or(cmp.Compare(x.Path, y.Path), cmp.Compare(x.Role, y.Role)) })

	entries := []any{}

	for _, r := range rules {
		if r.Kind == "user" && r.ID == user {
			entries = append(
				entries, object{"path": r.Path, "propagate": r.Propagate != nil && *r.Propagate == 1, "roleId": r.Role},
			)
		}
	}

	return entries, nil
}

// readBack is a resource after it was written. Its sets are those of the plan, whatever was read, until the next
// refresh: as published. Where it cannot be read, the plan is kept as its state.
func (as attributes) readBack(
	ctx context.Context, a *api, id string, plan object, read func(context.Context, *api, string, object) (object, error),
) (object, error) {
	state, err := read(ctx, a, id, plan)

	switch {
	case err != nil:
		return plan, err
	case state == nil:
		return plan, fmt.Errorf("%s is gone right after it was written: run the update again", id)
	}

	as.keepSets(plan, state)

	for name, attribute := range as {
		if attribute.set {
			state[name] = plan[name]
		}
	}

	return state, nil
}
