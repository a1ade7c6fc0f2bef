package proxmoxve

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	typeUser = "proxmoxve:Permission/user:User"
	userPath = "/access/users"
)

// userType is the resource of users, with their rules, groups and password.
func userType() *resourceType {
	return &resourceType{
		token: typeUser, attributes: user(), create: createUser, read: readUser, update: updateUser, remove: removeUser,
	}
}

func user() attributes {
	return attributes{
		"acls":           aclEntries(),
		"comment":        {fallback: "", effect: inPlace},
		"email":          {fallback: "", effect: inPlace},
		"enabled":        {kind: boolean, fallback: true, effect: inPlace},
		"expirationDate": {fallback: never, effect: inPlace, validate: userExpiration},
		"firstName":      {fallback: "", effect: inPlace},
		"groups":         {many: true, set: true, fallback: []any{}, effect: inPlace},
		"keys":           {fallback: "", effect: inPlace},
		"lastName":       {fallback: "", effect: inPlace},
		"password":       {secret: true, effect: inPlace},
		"userId":         {required: true, effect: replace},
	}
}

func userExpiration(v any) string {
	if _, err := time.Parse(time.RFC3339, v.(string)); err != nil {
		return fmt.Sprintf("expected \"expiration_date\" to be a valid RFC3339 date, got %q: %s", v, err)
	}

	return ""
}

func userAt(id string) string { return userPath + "/" + url.PathEscape(id) }

// userRequest are the parameters that creation and change have in common. Without groups there is no parameter of them,
// so that the last group is never left: as published.
func userRequest(plan object) (form, error) {
	expires, err := unixTime(str(plan, "expirationDate"))
	if err != nil {
		return nil, err
	}

	f := form{
		"comment":   str(plan, "comment"),
		"email":     str(plan, "email"),
		"enable":    bit(flag(plan, "enabled")),
		"expire":    expires,
		"firstname": str(plan, "firstName"),
		"keys":      str(plan, "keys"), "lastname": str(plan, "lastName"),
	}
	f.some("groups", strings.Join(words(plan, "groups"), ","))

	return f, nil
}

func createUser(ctx context.Context, a *api, plan object) (string, object, error) {
	id := str(plan, "userId")

	f, err := userRequest(plan)
	if err != nil {
		return "", nil, err
	}

	f["userid"] = id
	f.some("password", str(plan, "password"))

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
func readUser(ctx context.Context, a *api, id string, before object) (object, error) {
	found := struct {
		Comment, Email, FirstName, Keys, LastName string
		Groups                                    []string
		Enable                                    int
		Expire                                    int64
	}{Enable: 1}

	err := a.call(ctx, http.MethodGet, userAt(id), nil, &found)

	switch {
	case gone(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("error retrieving user: %w", err)
	}

	entries, err := readEntries(ctx, a, "user", id)
	if err != nil {
		return nil, err
	}

	slices.Sort(found.Groups)

	return object{
		"acls":           entries,
		"comment":        found.Comment,
		"email":          found.Email,
		"enabled":        found.Enable == 1,
		"expirationDate": date(found.Expire),
		"firstName":      found.FirstName,
		"groups":         toList(found.Groups),
		"keys":           found.Keys,
		"lastName":       found.LastName,
		"password":       before["password"],
		"userId":         id,
	}, nil
}

// updateUser sets the password where it changed: as published, without the password of who asks, so that Proxmox 9
// refuses it.
func updateUser(ctx context.Context, a *api, id string, plan, state object) (object, error) {
	f, err := userRequest(plan)
	if err != nil {
		return nil, err
	}

	if err := a.call(ctx, http.MethodPut, userAt(id), f, nil); err != nil {
		return nil, fmt.Errorf("error updating user: %w", err)
	}

	if password := str(plan, "password"); password != str(state, "password") {
		if err := a.call(ctx, http.MethodPut, "/access/password", form{"userid": id, "password": password}, nil); err != nil {
			return nil, fmt.Errorf("error changing user password: %w", err)
		}
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
