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

// named is an id that one property states.
func named(name string) func(object) string {
	return func(values object) string { return str(values, name) }
}

// roleType is the resource of roles: named sets of privileges.
func roleType() *resourceType {
	at := under("/access/roles")

	return entity{
		table: attributes{
			"privileges": {many: true, set: true, required: true, effect: InPlace},
			"roleId":     {required: true, effect: Replace},
		},
		id: named("roleId"), at: at, param: "roleid", absent: gone,
		request: func(plan object) repeated {
			return repeated{"privs": {strings.Join(words(plan, "privileges"), ",")}}
		},
		read: func(ctx context.Context, a *api, id string) (object, error) {
			var found map[string]float64
			if err := a.call(ctx, http.MethodGet, at(id), nil, &found); err != nil {
				return nil, err
			}

			maps.DeleteFunc(found, func(_ string, granted float64) bool { return granted < 1 })

			return object{"roleId": id, "privileges": toList(slices.Sorted(maps.Keys(found)))}, nil
		},
		says: map[string]string{
			http.MethodPost: "error creating role", http.MethodGet: "error getting role",
			http.MethodPut: "error updating role", http.MethodDelete: "error deleting role",
		},
	}.resource(resourceType{token: typeRole})
}

var userAt = under("/access/users")

// userType is the resource of users, with their access rules and groups. A user who is gone is recognized by words that
// Proxmox does not have for users: a refresh after one was deleted manually fails, as published.
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
		id: named("userId"), at: userAt, param: "userid", absent: gone, holder: "users",
		// Without groups there is no parameter of them, so that the last group is never left: as published.
		request: func(plan object) repeated {
			request := repeated{"comment": {str(plan, "comment")}, "enable": {bit(flag(plan, "enabled"))}}
			if groups := words(plan, "groups"); len(groups) > 0 {
				request["groups"] = []string{strings.Join(groups, ",")}
			}

			return request
		},
		read: readUser,
		says: map[string]string{
			http.MethodPost: "error creating user", http.MethodGet: "error retrieving user",
			http.MethodPut: "error updating user", http.MethodDelete: "error deleting user",
		},
	}.resource(resourceType{token: typeUser})
}

// readUser takes over all rules of a user, those that other resources made included: as published.
func readUser(ctx context.Context, a *api, id string) (object, error) {
	found := struct {
		Comment string
		Groups  []string
		Enable  int
	}{Enable: 1}

	if err := a.call(ctx, http.MethodGet, userAt(id), nil, &found); err != nil {
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

// tokenType is the resource of API tokens. Proxmox says a token's value once: a change of anything but the name loses
// it from the state, and nothing that Proxmox says of a token that is gone means that: both as published.
func tokenType() *resourceType {
	at := func(id string) string {
		user, name, _ := strings.Cut(id, "!")

		return under(userAt(user) + "/token")(name)
	}

	return entity{
		table: attributes{
			"comment":              {exact: true, effect: InPlace},
			"privilegesSeparation": {kind: boolean, fallback: true, effect: InPlace},
			"tokenName":            {required: true, effect: Replace, validate: tokenName},
			"userId":               {required: true, effect: Replace},
			"value":                {output: true, secret: true},
		},
		id: func(values object) string { return str(values, "userId") + "!" + str(values, "tokenName") }, at: at,
		// A comment that is not set any more stays, as published.
		request: func(plan object) repeated {
			request := repeated{"privsep": {bit(flag(plan, "privilegesSeparation"))}}
			if comment, stated := plan["comment"].(string); stated {
				request["comment"] = []string{comment}
			}

			return request
		},
		created: func(plan, answer object) { plan["value"] = str(answer, "full-tokenid") + "=" + str(answer, "value") },
		read: func(ctx context.Context, a *api, id string) (object, error) {
			var found struct {
				Comment any
				Privsep int
			}

			err := a.call(ctx, http.MethodGet, at(id), nil, &found)

			return object{"comment": found.Comment, "privilegesSeparation": found.Privsep == 1}, err
		},
		says: map[string]string{
			http.MethodPost:   "Error creating user token: error creating user token",
			http.MethodGet:    "Error reading user token: error retrieving user token",
			http.MethodPut:    "Error creating user token: error updating user token",
			http.MethodDelete: "Error deleting user token: error deleting user token",
		},
	}.resource(resourceType{
		token: typeToken, framework: true,
		moreChanges: func(_, _ object, found differences) {
			if len(found) > 0 {
				found["value"] = difference{p.Update, InPlace}
			}
		},
		recomputes: func(object, object) []string { return []string{"value"} },
	})
}
