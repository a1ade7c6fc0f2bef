package proxmoxve

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	p "github.com/pulumi/pulumi-go-provider"
)

const (
	typeRole  = "proxmoxve:Permission/role:Role"
	typeUser  = "proxmoxve:Permission/user:User"
	typeToken = "proxmoxve:User/token:Token" //nolint:gosec // the type's name
)

// idFrom returns a function that takes a resource's id from a property.
func idFrom(name string) func(object) string {
	return func(values object) string { return str(values, name) }
}

// roleType returns the resource type of roles: named sets of privileges.
func roleType() *resourceType {
	at := pathIn("/access/roles")

	return entity{
		table: attributes{
			"privileges": {many: true, set: true, required: true, effect: InPlace},
			"roleId":     {required: true, effect: Replace},
		},
		id: idFrom("roleId"), path: at, idParam: "roleid", isAbsent: isNotFound,
		request: func(plan object) multiForm {
			return multiForm{"privs": {strings.Join(stringList(plan, "privileges"), ",")}}
		},
		read: func(ctx context.Context, a *api, id string) (object, error) {
			var found map[string]float64
			if err := a.call(ctx, http.MethodGet, at(id), nil, &found); err != nil {
				return nil, err
			}

			maps.DeleteFunc(found, func(_ string, granted float64) bool { return granted < 1 })

			return object{"roleId": id, "privileges": toList(slices.Sorted(maps.Keys(found)))}, nil
		},
		messages: map[string]string{
			http.MethodPost: "error creating role", http.MethodGet: "error getting role",
			http.MethodPut: "error updating role", http.MethodDelete: "error deleting role",
		},
	}.resource(resourceType{token: typeRole})
}

var userPath = pathIn("/access/users")

// userType returns the resource type of users, with their access rules and groups. The published provider recognizes
// a missing user by a message that Proxmox does not use for users, so a refresh after a manual deletion fails.
func userType() *resourceType {
	return entity{
		table: attributes{
			"acls": {kind: block, many: true, set: true, fallback: []any{}, effect: InPlace, fields: attributes{
				"path": {required: true}, "propagate": {kind: boolean, fallback: false}, "roleId": {required: true},
			}},
			"comment": {fallback: "", effect: InPlace},
			"enabled": {kind: boolean, fallback: true, effect: InPlace},
			"groups":  {many: true, set: true, fallback: []any{}, effect: InPlace},
			"userId":  {required: true, effect: Replace},
		},
		id: idFrom("userId"), path: userPath, idParam: "userid", isAbsent: isNotFound, holderParam: "users",
		// As published: without groups the parameter is omitted, so a user never leaves the last group.
		request: func(plan object) multiForm {
			request := multiForm{"comment": {str(plan, "comment")}, "enable": {formatBool(flag(plan, "enabled"))}}
			if groups := stringList(plan, "groups"); len(groups) > 0 {
				request["groups"] = []string{strings.Join(groups, ",")}
			}

			return request
		},
		read: readUser,
		messages: map[string]string{
			http.MethodPost: "error creating user", http.MethodGet: "error retrieving user",
			http.MethodPut: "error updating user", http.MethodDelete: "error deleting user",
		},
	}.resource(resourceType{token: typeUser})
}

// readUser reads all rules of a user, including those of other resources, as published.
func readUser(ctx context.Context, a *api, id string) (object, error) {
	found := struct {
		Comment string
		Groups  []string
		Enable  int
	}{Enable: 1}

	if err := a.call(ctx, http.MethodGet, userPath(id), nil, &found); err != nil {
		return nil, err
	}

	rules, err := listRules(ctx, a)
	if err != nil {
		return nil, err
	}

	entries := []any{}

	for _, r := range rules {
		if r.Kind == "user" && r.ID == id {
			entries = append(entries, object{"path": r.Path, "propagate": r.Propagate == 1, "roleId": r.Role})
		}
	}

	slices.Sort(found.Groups)

	return object{
		"acls": entries, "comment": found.Comment, "enabled": found.Enable == 1, "groups": toList(found.Groups), "userId": id,
	}, nil
}

// tokenType returns the resource type of API tokens. As published, a change of anything but the name loses the value
// from the state, because Proxmox returns it only once, and no response of Proxmox means that a token does not exist.
func tokenType() *resourceType {
	at := func(id string) string {
		user, name, _ := strings.Cut(id, "!")

		return pathIn(userPath(user) + "/token")(name)
	}

	return entity{
		table: attributes{
			"comment":              {exact: true, effect: InPlace},
			"privilegesSeparation": {kind: boolean, fallback: true, effect: InPlace},
			"tokenName":            {required: true, effect: Replace, validate: tokenName},
			"userId":               {required: true, effect: Replace},
			"value":                {output: true, secret: true},
		},
		id: func(values object) string { return str(values, "userId") + "!" + str(values, "tokenName") }, path: at,
		// As published, a removed comment stays.
		request: func(plan object) multiForm {
			request := multiForm{"privsep": {formatBool(flag(plan, "privilegesSeparation"))}}
			if comment, ok := plan["comment"].(string); ok {
				request["comment"] = []string{comment}
			}

			return request
		},
		afterCreate: func(plan, answer object) { plan["value"] = str(answer, "full-tokenid") + "=" + str(answer, "value") },
		read: func(ctx context.Context, a *api, id string) (object, error) {
			var found struct {
				Comment any
				Privsep int
			}

			err := a.call(ctx, http.MethodGet, at(id), nil, &found)

			return object{"comment": found.Comment, "privilegesSeparation": found.Privsep == 1}, err
		},
		messages: map[string]string{
			http.MethodPost:   "Error creating user token: error creating user token",
			http.MethodGet:    "Error reading user token: error retrieving user token",
			http.MethodPut:    "Error creating user token: error updating user token",
			http.MethodDelete: "Error deleting user token: error deleting user token",
		},
	}.resource(resourceType{
		token: typeToken, framework: true,
		outputChanges: func(_, _ object, found differences) {
			if len(found) > 0 {
				found["value"] = difference{p.Update, InPlace}
			}
		},
		recomputedOutputs: func(object, object) []string { return []string{"value"} },
	})
}
