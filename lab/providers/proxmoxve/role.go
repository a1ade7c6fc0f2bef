package proxmoxve

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

const (
	typeRole = "proxmoxve:Permission/role:Role"
	rolePath = "/access/roles"
)

// roleType is the resource of roles: named sets of privileges.
func roleType() *resourceType {
	return &resourceType{
		token: typeRole, attributes: role(), create: createRole, read: readRole, update: updateRole, remove: removeRole,
	}
}

func role() attributes {
	return attributes{
		"privileges": {many: true, set: true, required: true, effect: inPlace},
		"roleId":     {required: true, effect: replace},
	}
}

func roleAt(id string) string { return rolePath + "/" + url.PathEscape(id) }

func privileges(plan object) string { return strings.Join(words(plan, "privileges"), ",") }

func createRole(ctx context.Context, a *api, plan object) (string, object, error) {
	id := str(plan, "roleId")
	if err := a.call(ctx, http.MethodPost, rolePath, form{"roleid": id, "privs": privileges(plan)}, nil); err != nil {
		return "", nil, fmt.Errorf("error creating role: %w", err)
	}

	state, err := role().readBack(ctx, a, id, plan, readRole)

	return id, state, err
}

func readRole(ctx context.Context, a *api, id string, _ object) (object, error) {
	var found map[string]float64

	err := a.call(ctx, http.MethodGet, roleAt(id), nil, &found)

	switch {
	case gone(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("error getting role: %w", err)
	}

	maps.DeleteFunc(found, func(_ string, granted float64) bool { return granted < 1 })

	return object{"roleId": id, "privileges": toList(slices.Sorted(maps.Keys(found)))}, nil
}

func updateRole(ctx context.Context, a *api, id string, plan, _ object) (object, error) {
	if err := a.call(ctx, http.MethodPut, roleAt(id), form{"privs": privileges(plan)}, nil); err != nil {
		return nil, fmt.Errorf("error updating role: %w", err)
	}

	return role().readBack(ctx, a, id, plan, readRole)
}

func removeRole(ctx context.Context, a *api, id string, _ object) error {
	if err := a.call(ctx, http.MethodDelete, roleAt(id), nil, nil); err != nil && !gone(err) {
		return fmt.Errorf("error deleting role: %w", err)
	}

	return nil
}
