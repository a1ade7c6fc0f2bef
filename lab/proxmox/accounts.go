package proxmox

import (
	"net/http"
	"slices"
	"strings"

	"talos-proxmox/lab/datacentre"
)

// accountRoutes are users, their API tokens and groups.
func accountRoutes() []route {
	const (
		user, token, group = "/access/users/{userid}", "/access/users/{userid}/token/{tokenid}", "/access/groups/{groupid}"
		fields             = "comment email enable expire firstname groups keys lastname"
	)

	return []route{
		{method: "GET", path: "/access/users", params: "enabled full", handle: listUsers},
		{method: "POST", path: "/access/users", params: "userid* password " + fields, allow: mayCreateUser, handle: postUser},
		{method: "GET", path: user, allow: onAccount("User.Modify", "Sys.Audit"), handle: onUser(getUser)},
		{method: "PUT", path: user, params: "append " + fields, allow: mayUpdateUser, handle: onUser(putUser)},
		{method: "DELETE", path: user, allow: mayDeleteUser, handle: onUser(func(
			r *request, u datacentre.User,
		) (any, error) {
			r.dc.DeleteUser(u.ID)

			return nil, nil
		})},
		{
			method: "PUT",
			path:   "/access/password",
			params: "userid* password* confirmation-password",
			allow:  ownPassword,
			handle: onUser(putPassword),
		},
		{method: "GET", path: "/access/users/{userid}/token", allow: ownAccount, handle: onUser(listTokens)},
		{
			method: "GET",
			path:   token,
			allow:  ownAccount,
			handle: onToken(func(_ *request, t datacentre.Token) (any, error) { return tokenInfo(t), nil }),
		},
		{method: "POST", path: token, params: "comment expire privsep", allow: ownAccount, handle: onUser(postToken)},
		{method: "PUT", path: token, params: "comment expire privsep delete", allow: ownAccount, handle: onToken(putToken)},
		{method: "DELETE", path: token, allow: ownAccount, handle: onToken(func(r *request, t datacentre.Token) (any, error) {
			r.dc.DeleteToken(t.ID)

			return nil, nil
		})},
		{method: "GET", path: "/access/groups", handle: listGroups},
		{
			method:    "POST",
			path:      "/access/groups",
			params:    "groupid* comment",
			privilege: "Group.Allocate",
			path2:     "/access/groups",
			handle:    postGroup,
		},
		{method: "GET", path: group, privilege: "Sys.Audit|Group.Allocate", path2: "/access/groups", handle: onGroup(
			"", func(_ *request, g datacentre.Group) (any, error) {
				return object{"members": append([]string{}, g.Users...), "comment": g.Comment}, nil
			})},
		{method: "PUT", path: group, params: "comment", privilege: "Group.Allocate", path2: "/access/groups", handle: onGroup(
			"update group failed: ", func(r *request, g datacentre.Group) (any, error) {
				g.Comment = r.params.get("comment")
				r.dc.PutGroup(g)

				return nil, nil
			})},
		{method: "DELETE", path: group, privilege: "Group.Allocate", path2: "/access/groups", handle: onGroup(
			"delete group failed: ", func(r *request, g datacentre.Group) (any, error) {
				r.dc.DeleteGroup(g.ID)

				return nil, nil
			})},
	}
}

func onUser(h func(*request, datacentre.User) (any, error)) func(*request) (any, error) {
	return func(r *request) (any, error) {
		u, err := namedUser(r)
		if err != nil {
			return nil, err
		}

		return h(r, u)
	}
}

func namedUser(r *request) (datacentre.User, error) {
	id := r.fill("{userid}")

	u, ok := r.dc.Users()[id]

	switch {
	case !ok && !strings.Contains(id, "@"):
		return u, badUser(id)
	case !ok:
		return u, &datacentre.Error{Status: http.StatusInternalServerError, Message: "no such user ('" + id + "')"}
	default:
		return u, nil
	}
}

// onGroup finds the call's group; what a change fails at begins with what fails.
func onGroup(failed string, h func(*request, datacentre.Group) (any, error)) func(*request) (any, error) {
	return func(r *request) (any, error) {
		for _, g := range r.dc.Groups() {
			if g.ID == r.vars["groupid"] {
				return h(r, g)
			}
		}

		return nil, &datacentre.Error{
			Status: http.StatusInternalServerError, Message: failed + "group '" + r.vars["groupid"] + "' does not exist",
		}
	}
}

func userInfo(u datacentre.User) object {
	o := object{"enable": flag(!u.Disabled), "expire": u.Expire}
	add(o, "comment", u.Comment)
	add(o, "email", u.Email)
	add(o, "firstname", u.First)
	add(o, "lastname", u.Last)
	add(o, "keys", u.Keys)

	return o
}

func groupsOf(r *request, user string) []string {
	list := []string{}

	for _, g := range r.dc.Groups() {
		if slices.Contains(g.Users, user) {
			list = append(list, g.ID)
		}
	}

	return list
}

func listUsers(r *request) (any, error) {
	list := []object{}

	for id, u := range r.dc.Users() {
		visible := id == r.user || r.dc.Allowed(r.user, "/access/groups", "User.Modify", "Sys.Audit") ||
			slices.ContainsFunc(groupsOf(r, id), func(group string) bool {
				return r.dc.Allowed(r.user, "/access/groups/"+group, "User.Modify", "Sys.Audit")
			})
		if !visible || r.params.has("enabled") && r.params.bool("enabled") == u.Disabled {
			continue
		}

		o := userInfo(u)
		o["userid"] = id
		o["realm-type"] = id[strings.LastIndexByte(id, '@')+1:]

		if r.params.bool("full") {
			o["groups"] = strings.Join(groupsOf(r, id), ",")
			o["tokens"] = orNull(tokensOf(r, id))
		}

		list = append(list, o)
	}

	slices.SortFunc(list, func(a, b object) int { return strings.Compare(a["userid"].(string), b["userid"].(string)) })

	return list, nil
}

// orNull is a list as PVE writes it where it has none: null.
func orNull(list []object) any {
	if len(list) == 0 {
		return nil
	}

	return list
}

func getUser(r *request, u datacentre.User) (any, error) {
	o := userInfo(u)
	o["groups"] = groupsOf(r, u.ID)
	tokens := object{}

	for _, t := range tokensOf(r, u.ID) {
		name, _ := t["tokenid"].(string)
		delete(t, "tokenid")
		tokens[name] = t
	}

	if o["tokens"] = tokens; len(tokens) == 0 {
		o["tokens"] = nil
	}

	return o, nil
}

// fillUser takes the request's fields over, and puts the user into the groups.
func fillUser(r *request, u datacentre.User, failed string) error {
	for name, to := range map[string]*string{
		"comment":   &u.Comment,
		"email":     &u.Email,
		"firstname": &u.First,
		"keys":      &u.Keys,
		"lastname":  &u.Last,
		"password":  &u.Password,
	} {
		if r.params.has(name) {
			*to = r.params.get(name)
		}
	}

	if r.params.has("enable") {
		u.Disabled = !r.params.bool("enable")
	}

	expire, err := r.params.number("expire", int(u.Expire))
	if err != nil {
		return err
	}

	u.Expire = int64(expire)
	known := r.dc.Groups()

	for _, id := range r.params.list("groups") {
		if !slices.ContainsFunc(known, func(g datacentre.Group) bool { return g.ID == id }) {
			return &datacentre.Error{Status: http.StatusInternalServerError, Message: failed + "no such group '" + id + "'"}
		}
	}

	r.dc.PutUser(u)

	for _, g := range known {
		in, wanted := slices.Contains(g.Users, u.ID), slices.Contains(r.params.list("groups"), g.ID)

		switch {
		case wanted && !in:
			g.Users = append(g.Users, u.ID)
		case in && !wanted && r.params.has("groups") && !r.params.bool("append"):
			g.Users = slices.DeleteFunc(g.Users, func(user string) bool { return user == u.ID })
		default:
			continue
		}

		r.dc.PutGroup(g)
	}

	return nil
}

func postUser(r *request) (any, error) {
	id := r.params.get("userid")

	// A realm is looked for only to keep a password there.
	if _, realm, _ := strings.Cut(id, "@"); r.params.has("password") && realm != "pam" && realm != "pve" {
		return nil, &datacentre.Error{
			Status: http.StatusInternalServerError, Message: "create user failed: auth domain '" + realm + "' does not exist",
		}
	}

	if _, exists := r.dc.Users()[id]; exists {
		return nil, &datacentre.Error{
			Status: http.StatusInternalServerError, Message: "create user failed: user '" + id + "' already exists",
		}
	}

	return done(fillUser(r, datacentre.User{ID: id}, "create user failed: "))
}

func putUser(r *request, u datacentre.User) (any, error) {
	return done(fillUser(r, u, "update user failed: "))
}

// putPassword wants the password of the ticket's user once more.
func putPassword(r *request, u datacentre.User) (any, error) {
	if !r.params.has("confirmation-password") {
		return nil, datacentre.ParameterError(
			map[string]string{"confirmation-password": "password is required to modify user"},
		)
	}

	if !r.dc.CheckPassword(r.user, r.params.get("confirmation-password")) {
		return nil, &datacentre.Error{Status: http.StatusInternalServerError, Message: "invalid credentials"}
	}

	u.Password = r.params.get("password")
	r.dc.PutUser(u)

	return nil, nil
}

func listGroups(r *request) (any, error) {
	list := []object{}

	for _, g := range r.dc.Groups() {
		if r.dc.Allowed(r.user, "/access/groups/"+g.ID, "User.Modify", "Sys.Audit", "Group.Allocate") {
			o := object{"groupid": g.ID, "users": strings.Join(g.Users, ",")}
			add(o, "comment", g.Comment)
			list = append(list, o)
		}
	}

	return list, nil
}

func postGroup(r *request) (any, error) {
	id := r.params.get("groupid")
	if slices.ContainsFunc(r.dc.Groups(), func(g datacentre.Group) bool { return g.ID == id }) {
		return nil, &datacentre.Error{
			Status: http.StatusInternalServerError, Message: "create group failed: group '" + id + "' already exists",
		}
	}

	r.dc.PutGroup(datacentre.Group{ID: id, Comment: r.params.get("comment")})

	return nil, nil
}
