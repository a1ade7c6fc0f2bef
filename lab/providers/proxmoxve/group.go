package proxmoxve

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
)

const (
	typeGroup = "proxmoxve:Permission/group:Group"
	groupPath = "/access/groups"
)

// groupType is the resource of groups of users, with their rules.
func groupType() *resourceType {
	return &resourceType{
		token: typeGroup, attributes: group(), create: createGroup, read: readGroup, update: updateGroup, remove: removeGroup,
	}
}

func group() attributes {
	return attributes{
		"acls":    aclEntries(),
		"comment": {fallback: "", effect: inPlace},
		"groupId": {required: true, effect: replace},
		"members": {many: true, output: true},
	}
}

func groupAt(id string) string { return groupPath + "/" + url.PathEscape(id) }

func createGroup(ctx context.Context, a *api, plan object) (string, object, error) {
	id := str(plan, "groupId")
	if err := a.call(
		ctx, http.MethodPost, groupPath, form{"groupid": id, "comment": str(plan, "comment")}, nil,
	); err != nil {
		return "", nil, fmt.Errorf("failed to create access group: %w", err)
	}

	if err := putEntries(ctx, a, nil, plan, form{"groups": id}); err != nil {
		return id, plan, err
	}

	state, err := group().readBack(ctx, a, id, plan, readGroup)

	return id, state, err
}

// readGroup leaves the id as it is in the state: the published provider does not fill it in, so that an imported group
// has none.
func readGroup(ctx context.Context, a *api, id string, before object) (object, error) {
	var found struct {
		Comment string   `json:"comment"`
		Members []string `json:"members"`
	}

	err := a.call(ctx, http.MethodGet, groupAt(id), nil, &found)

	switch {
	case gone(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("failed to get access group: %w", err)
	}

	entries, err := readEntries(ctx, a, "group", id)
	if err != nil {
		return nil, err
	}

	slices.Sort(found.Members)

	return object{
		"acls": entries, "comment": found.Comment, "groupId": before["groupId"], "members": toList(found.Members),
	}, nil
}

func updateGroup(ctx context.Context, a *api, id string, plan, state object) (object, error) {
	if err := a.call(ctx, http.MethodPut, groupAt(id), form{"comment": str(plan, "comment")}, nil); err != nil {
		return nil, fmt.Errorf("failed to update access group: %w", err)
	}

	if err := putEntries(ctx, a, state, plan, form{"groups": id}); err != nil {
		return nil, err
	}

	return group().readBack(ctx, a, id, plan, readGroup)
}

func removeGroup(ctx context.Context, a *api, id string, state object) error {
	if err := putEntries(ctx, a, state, nil, form{"groups": id}); err != nil {
		return err
	}

	if err := a.call(ctx, http.MethodDelete, groupAt(id), nil, nil); err != nil && !gone(err) {
		return fmt.Errorf("failed to delete access group: %w", err)
	}

	return nil
}
