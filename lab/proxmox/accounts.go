package proxmox

import (
	"slices"
	"strings"

	"github.com/google/uuid"

	"talos-proxmox/lab/datacentre"
)

// accountCalls are users, their API tokens and groups.
var accountCalls = map[string]handler{
	"GET /access/users":                             listUsers,
	"POST /access/users":                            postUser,
	"GET /access/users/{userid}":                    on(namedUser, getUser),
	"PUT /access/users/{userid}":                    on(namedUser, putUser),
	"DELETE /access/users/{userid}":                 removal(namedUser, (*datacentre.Datacentre).DeleteUser, "{userid}"),
	"GET /access/users/{userid}/token":              on(namedUser, listTokens),
	"GET /access/users/{userid}/token/{tokenid}":    on(namedToken, getToken),
	"POST /access/users/{userid}/token/{tokenid}":   on(namedUser, postToken),
	"PUT /access/users/{userid}/token/{tokenid}":    on(namedToken, putToken),
	"DELETE /access/users/{userid}/token/{tokenid}": removal(namedToken, (*datacentre.Datacentre).DeleteToken, tokenID),
	"GET /access/groups":                            listGroups,
	"POST /access/groups":                           postGroup,
	"GET /access/groups/{groupid}":                  on(namedGroup(""), getGroup),
	"PUT /access/groups/{groupid}":                  on(namedGroup("update group failed: "), putGroup),
	"DELETE /access/groups/{groupid}": removal(
		namedGroup("delete group failed: "), (*datacentre.Datacentre).DeleteGroup, "{groupid}",
	),
}

func namedUser(r *request) (datacentre.User, error) {
	id := r.fill("{userid}")

	u, ok := r.dc.Users()[id]

	switch {
	case !ok && !strings.Contains(id, "@"):
		return u, badUser(id)
	case !ok:
		return u, datacentre.Refuse("no such user ('%s')", id)
	default:
		return u, nil
	}
}

// namedGroup finds the call's group; what a change fails at begins with what fails.
func namedGroup(failed string) func(*request) (datacentre.Group, error) {
	return named((*datacentre.Datacentre).Groups, "{groupid}", failed+"group '{groupid}' does not exist")
}

// userTexts are what the API sets of a user as it is; a password is not shown.
func userTexts(u *datacentre.User) map[string]*string {
	return map[string]*string{
		"comment":   &u.Comment,
		"email":     &u.Email,
		"firstname": &u.First,
		"keys":      &u.Keys,
		"lastname":  &u.Last,
	}
}

func userInfo(u datacentre.User) object {
	o := object{"enable": flag(!u.Disabled), "expire": u.Expire}
	for name, text := range userTexts(&u) {
		add(o, name, *text)
	}

	return o
}

func groupsOf(r *request, user string) []string {
	list := []string{}

	for _, g := range ordered(r.dc.Groups()) {
		if slices.Contains(g.Users, user) {
			list = append(list, g.ID)
		}
	}

	return list
}

func listUsers(r *request) (any, error) {
	return rows(ordered(r.dc.Users()), func(u datacentre.User) object {
		visible := u.ID == r.user || r.dc.Allowed(r.user, "/access/groups", "User.Modify", "Sys.Audit") ||
			slices.ContainsFunc(groupsOf(r, u.ID), func(group string) bool {
				return r.dc.Allowed(r.user, "/access/groups/"+group, "User.Modify", "Sys.Audit")
			})
		if !visible || r.params.Has("enabled") && r.params.Bool("enabled") == u.Disabled {
			return nil
		}

		o := userInfo(u)
		o["userid"] = u.ID
		o["realm-type"] = u.ID[strings.LastIndexByte(u.ID, '@')+1:]

		if r.params.Bool("full") {
			o["groups"] = strings.Join(groupsOf(r, u.ID), ",")
			o["tokens"] = nil // as PVE writes none

			if tokens := tokensOf(r, u.ID); len(tokens) > 0 {
				o["tokens"] = tokens
			}
		}

		return o
	}), nil
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
	texts := userTexts(&u)
	texts["password"] = &u.Password

	for name, to := range texts {
		if r.params.Has(name) {
			*to = r.params[name]
		}
	}

	if r.params.Has("enable") {
		u.Disabled = !r.params.Bool("enable")
	}

	u.Expire = int64(r.params.Number("expire", int(u.Expire)))
	known := r.dc.Groups()

	for _, id := range r.params.List("groups") {
		if _, ok := known[id]; !ok {
			return datacentre.Refuse("%sno such group '%s'", failed, id)
		}
	}

	r.dc.PutUser(u)

	for _, g := range known {
		in, wanted := slices.Contains(g.Users, u.ID), slices.Contains(r.params.List("groups"), g.ID)

		switch {
		case wanted && !in:
			g.Users = append(slices.Clone(g.Users), u.ID)
		case in && !wanted && r.params.Has("groups") && !r.params.Bool("append"):
			g.Users = slices.DeleteFunc(slices.Clone(g.Users), func(user string) bool { return user == u.ID })
		default:
			continue
		}

		r.dc.PutGroup(g)
	}

	return nil
}

func postUser(r *request) (any, error) {
	id := r.params["userid"]

	// A realm is looked for only to keep a password there.
	if _, realm, _ := strings.Cut(id, "@"); r.params.Has("password") && realm != "pam" && realm != "pve" {
		return nil, datacentre.Refuse("create user failed: auth domain '%s' does not exist", realm)
	}

	if _, exists := r.dc.Users()[id]; exists {
		return nil, datacentre.Refuse("create user failed: user '%s' already exists", id)
	}

	return nil, fillUser(r, datacentre.User{ID: id}, "create user failed: ")
}

func putUser(r *request, u datacentre.User) (any, error) {
	return nil, fillUser(r, u, "update user failed: ")
}

func listGroups(r *request) (any, error) {
	return rows(ordered(r.dc.Groups()), func(g datacentre.Group) object {
		if !r.dc.Allowed(r.user, "/access/groups/"+g.ID, "User.Modify", "Sys.Audit", "Group.Allocate") {
			return nil
		}

		o := object{"groupid": g.ID, "users": strings.Join(g.Users, ",")}
		add(o, "comment", g.Comment)

		return o
	}), nil
}

func postGroup(r *request) (any, error) {
	id := r.params["groupid"]
	if _, exists := r.dc.Groups()[id]; exists {
		return nil, datacentre.Refuse("create group failed: group '%s' already exists", id)
	}

	return putGroup(r, datacentre.Group{ID: id})
}

func getGroup(_ *request, g datacentre.Group) (any, error) {
	return object{"members": append([]string{}, g.Users...), "comment": g.Comment}, nil
}

func putGroup(r *request, g datacentre.Group) (any, error) {
	g.Comment = r.params["comment"]
	r.dc.PutGroup(g)

	return nil, nil
}

const tokenID = "{userid}!{tokenid}"

func namedToken(r *request) (datacentre.Token, error) {
	if _, err := namedUser(r); err != nil {
		return datacentre.Token{}, err
	}

	return named((*datacentre.Datacentre).Tokens, tokenID, "no such token '{tokenid}' for user '{userid}'")(r)
}

func tokenInfo(t datacentre.Token) object {
	o := object{"privsep": flag(t.Separated), "expire": t.Expire}
	add(o, "comment", t.Comment)

	return o
}

func tokensOf(r *request, user string) []object {
	return rows(ordered(r.dc.Tokens()), func(t datacentre.Token) object {
		name, ok := strings.CutPrefix(t.ID, user+"!")
		if !ok {
			return nil
		}

		o := tokenInfo(t)
		o["tokenid"] = name

		return o
	})
}

func getToken(_ *request, t datacentre.Token) (any, error) { return tokenInfo(t), nil }

func listTokens(r *request, u datacentre.User) (any, error) { return tokensOf(r, u.ID), nil }

// echo writes numbers of an answer as the call wrote them: in text, as PVE does after a change.
func (r *request) echo(o object) object {
	for k := range o {
		if r.params.Has(k) {
			o[k] = r.params[k]
		}
	}

	return o
}

func fillToken(r *request, t datacentre.Token) (datacentre.Token, error) {
	if r.params.Has("comment") {
		t.Comment = r.params["comment"]
	}

	if r.params.Has("privsep") {
		t.Separated = r.params.Bool("privsep")
	}

	t.Expire = int64(r.params.Number("expire", int(t.Expire)))

	for _, name := range r.params.List("delete") {
		if name != "comment" {
			return t, datacentre.Refuse("updating token info failed: 400 Parameter verification failed.")
		}

		t.Comment = ""
	}

	return t, nil
}

func postToken(r *request, _ datacentre.User) (any, error) {
	id := r.fill(tokenID)
	if _, exists := r.dc.Tokens()[id]; exists {
		return nil, datacentre.WrongParameter("tokenid", "Token already exists.")
	}

	t, err := fillToken(r, datacentre.Token{ID: id, Separated: true, Secret: uuid.NewString()})
	if err != nil {
		return nil, err
	}

	r.dc.PutToken(t)

	info := r.echo(tokenInfo(t))
	if !r.params.Has("expire") {
		delete(info, "expire")
	}

	return object{"full-tokenid": id, "value": t.Secret, "info": info}, nil
}

func putToken(r *request, t datacentre.Token) (any, error) {
	t, err := fillToken(r, t)
	if err != nil {
		return nil, err
	}

	r.dc.PutToken(t)

	return r.echo(tokenInfo(t)), nil
}
