package proxmoxve

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

const (
	typeUser = "proxmoxve:Permission/user:User"
	userPath = "/access/users"
)

// userType is the resource of users, with their rules and groups.
func userType() *resourceType {
	return &resourceType{
		token: typeUser, attributes: user(), create: createUser, read: readUser, update: updateUser, remove: removeUser,
	}
}

func user() attributes {
	return attributes{
		"acls": {kind: block, many: true, set: true, fallback: []any{}, effect: inPlace, fields: attributes{
			"path": {required: true}, "propagate": {kind: boolean, fallback: false}, "roleId": {required: true},
		}},
		"comment": {fallback: "", effect: inPlace},
		"enabled": {kind: boolean, fallback: true, effect: inPlace},
		"groups":  {many: true, set: true, fallback: []any{}, effect: inPlace},
		"userId":  {required: true, effect: replace},
	}
}

func userAt(id string) string { return userPath + "/" + url.PathEscape(id) }

// userRequest are the parameters that creation and change have in common. Without groups there is no parameter of them,
// so that the last group is never left: as published.
func userRequest(plan object) form {
	f := form{"comment": str(plan, "comment"), "enable": bit(flag(plan, "enabled"))}
	f.some("groups", strings.Join(words(plan, "groups"), ","))

	return f
}

func createUser(ctx context.Context, a *api, plan object) (string, object, error) {
	id := str(plan, "userId")

	f := userRequest(plan)
	f["userid"] = id

	if err := a.call(ctx, http.MethodPost, userPath, f, nil); err != nil {
		return "", nil, fmt.Errorf("error creating user: %w", err)
	}

	if err := putEntries(ctx, a, nil, plan, form{"users": id}); err != nil {
		return id, plan, err
	}

	state, err := user().readBack(ctx, a, id, plan, readUser)

	return id, state, err
}

// readUser finds a user who is gone only in words that Proxmox does not have for users: a refresh after one was deleted
// manually fails, as published.
func readUser(ctx context.Context, a *api, id string, _ object) (object, error) {
	found := struct {
		Comment string
		Groups  []string
		Enable  int
	}{Enable: 1}

	err := a.call(ctx, http.MethodGet, userAt(id), nil, &found)

	switch {
	case gone(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("error retrieving user: %w", err)
	}

	entries, err := readEntries(ctx, a, id)
	if err != nil {
		return nil, err
	}

	slices.Sort(found.Groups)

	return object{
		"acls":    entries,
		"comment": found.Comment,
		"enabled": found.Enable == 1,
		"groups":  toList(found.Groups),
		"userId":  id,
	}, nil
}

func updateUser(ctx context.Context, a *api, id string, plan, state object) (object, error) {
	if err := a.call(ctx, http.MethodPut, userAt(id), userRequest(plan), nil); err != nil {
		return nil, fmt.Errorf("error updating user: %w", err)
	}

	if err := putEntries(ctx, a, state, plan, form{"users": id}); err != nil {
		return nil, err
	}

	return user().readBack(ctx, a, id, plan, readUser)
}

func removeUser(ctx context.Context, a *api, id string, state object) error {
	if err := putEntries(ctx, a, state, nil, form{"users": id}); err != nil {
		return err
	}

	if err := a.call(ctx, http.MethodDelete, userAt(id), nil, nil); err != nil && !gone(err) {
		return fmt.Errorf("error deleting user: %w", err)
	}

	return nil
}
