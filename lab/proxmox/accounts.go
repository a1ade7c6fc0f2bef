package proxmox

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"talos-proxmox/lab/datacentre"
)

// accountCalls handle users, API tokens and groups.
var accountCalls = map[string]handler{
	"GET /access/users":                             users().list,
	"POST /access/users":                            users().create,
	"GET /access/users/{userid}":                    users().show,
	"PUT /access/users/{userid}":                    users().update,
	"DELETE /access/users/{userid}":                 users().remove,
	"GET /access/users/{userid}/token":              withSubject(users().find, listTokens),
	"GET /access/users/{userid}/token/{tokenid}":    tokens().show,
	"POST /access/users/{userid}/token/{tokenid}":   withSubject(users().find, postToken),
	"PUT /access/users/{userid}/token/{tokenid}":    putToken,
	"DELETE /access/users/{userid}/token/{tokenid}": tokens().remove,
	"GET /access/groups":                            groups().list,
	"POST /access/groups":                           groups().create,
	"GET /access/groups/{groupid}":                  groups().show,
	"PUT /access/groups/{groupid}":                  groups().update,
	"DELETE /access/groups/{groupid}":               groups().remove,
}

func users() recordKind {
	return recordKind{
		Kind: datacentre.Users, createCall: "POST /access/users", idTemplate: "{userid}", errorSubject: "user",
		defaults: datacentre.Config{"enable": "1", "expire": "0"},
		errNotFound: func(r *request) error {
			id := r.fill("{userid}")
			if !strings.Contains(id, "@") {
				return errInvalidUserName(id)
			}

			return datacentre.Refuse("no such user ('%s')", id)
		},
		isVisible: isUserVisible, addToRow: userRow, prepare: setUserGroups,
		detail: func(r *request, id string, _ datacentre.Config, o object) any {
			all := object{}

			for _, t := range userTokens(r, id) {
				all[fmt.Sprint(t["tokenid"])] = t
				delete(t, "tokenid")
			}

			o["groups"], o["tokens"] = userGroups(r, id), nil // null without tokens, as in PVE
			if len(all) > 0 {
				o["tokens"] = all
			}

			return o
		},
	}
}

func isUserVisible(r *request, id string, u datacentre.Config) bool {
	visible := id == r.user || r.dc.Allowed(r.user, "/access/groups", "User.Modify", "Sys.Audit") ||
		slices.ContainsFunc(userGroups(r, id), func(group string) bool {
			return r.dc.Allowed(r.user, "/access/groups/"+group, "User.Modify", "Sys.Audit")
		})

	return visible && (!r.params.Has("enabled") || r.params.Bool("enabled") == (u["enable"] != "0"))
}

func userRow(r *request, id string, _ datacentre.Config, o object) {
	if r.route.path != "/access/users" {
		return
	}

	o["realm-type"] = id[strings.LastIndexByte(id, '@')+1:]

	if r.params.Bool("full") {
		o["groups"] = strings.Join(userGroups(r, id), ",")
		o["tokens"] = nil // null without tokens, as in PVE

		if tokens := userTokens(r, id); len(tokens) > 0 {
			o["tokens"] = tokens
		}
	}
}

// setUserGroups adds the user to groups, whose records list their members.
func setUserGroups(r *request, id string, _, record datacentre.Config) error {
	known, wanted := r.dc.Records(datacentre.Groups), r.params.List("groups")

	// PVE looks up the realm only to store a password in it.
	if _, realm, _ := strings.Cut(id, "@"); r.params.Has("password") && realm != "pam" && realm != "pve" {
		return datacentre.Refuse("create user failed: auth domain '%s' does not exist", realm)
	}

	for _, group := range wanted {
		if _, ok := known[group]; !ok {
			return datacentre.Refuse("%sno such group '%s'", users().errorPrefix(r), group)
		}
	}

	delete(record, "groups")

	for name, group := range known {
		members := group.List("users")
		isMember, isWanted := slices.Contains(members, id), slices.Contains(wanted, name)

		switch {
		case isWanted && !isMember:
			members = append(members, id)
		case isMember && !isWanted && r.params.Has("groups") && !r.params.Bool("append"):
			members = slices.DeleteFunc(members, func(user string) bool { return user == id })
		default:
			continue
		}

		group["users"] = strings.Join(members, ",")
		r.dc.Put(datacentre.Groups, name, group)
	}

	return nil
}

func userGroups(r *request, user string) []string {
	list := []string{}

	for name, group := range r.dc.Records(datacentre.Groups) {
		if slices.Contains(group.List("users"), user) {
			list = append(list, name)
		}
	}

	slices.Sort(list)

	return list
}

func groups() recordKind {
	return recordKind{
		Kind: datacentre.Groups, createCall: "POST /access/groups", idTemplate: "{groupid}", errorSubject: "group",
		isVisible: func(r *request, id string, _ datacentre.Config) bool {
			return r.dc.Allowed(r.user, "/access/groups/"+id, "User.Modify", "Sys.Audit", "Group.Allocate")
		},
		addToRow: func(_ *request, _ string, group datacentre.Config, o object) { o["users"] = group["users"] },
		detail: func(_ *request, _ string, group datacentre.Config, _ object) any {
			return object{"members": append([]string{}, group.List("users")...), "comment": group["comment"]}
		},
	}
}

func tokens() recordKind {
	return recordKind{
		Kind: datacentre.Tokens, createCall: "POST /access/users/{userid}/token/{tokenid}", idTemplate: "{userid}!{tokenid}",
		defaults: datacentre.Config{"privsep": "1", "expire": "0"},
		errNotFound: func(r *request) error {
			if _, err := users().find(r); err != nil {
				return err
			}

			return datacentre.Refuse("%s", r.fill("no such token '{tokenid}' for user '{userid}'"))
		},
		errExists: func(*request) error { return datacentre.WrongParameter("tokenid", "Token already exists.") },
		prepare: func(r *request, _ string, old, record datacentre.Config) error {
			if old == nil {
				record["value"] = uuid.NewString()
			}

			for _, name := range r.params.List("delete") {
				if name != "comment" {
					return datacentre.Refuse("updating token info failed: 400 Parameter verification failed.")
				}
			}

			return nil
		},
	}
}

func userTokens(r *request, user string) []object {
	all := r.dc.Records(datacentre.Tokens)

	return rows(slices.Sorted(maps.Keys(all)), func(id string) object {
		name, ok := strings.CutPrefix(id, user+"!")
		if !ok {
			return nil
		}

		o := tokens().render(r, id, all[id])
		o["tokenid"] = name

		return o
	})
}

func listTokens(r *request, _ datacentre.Config) (any, error) {
	return userTokens(r, r.fill("{userid}")), nil
}

// tokenInfo returns a token after a change. Like PVE, it repeats numbers of the call as strings.
func tokenInfo(r *request) (info object, secret string) {
	token, _ := tokens().find(r) //nolint:errcheck // it was just created or changed
	info = tokens().render(r, "", token)

	for name := range info {
		if r.params.Has(name) {
			info[name] = r.params[name]
		}
	}

	return info, token["value"]
}

func postToken(r *request, _ datacentre.Config) (any, error) {
	if _, err := tokens().create(r); err != nil {
		return nil, err
	}

	info, secret := tokenInfo(r)
	if !r.params.Has("expire") {
		delete(info, "expire")
	}

	return object{"full-tokenid": r.fill(tokens().idTemplate), "value": secret, "info": info}, nil
}

func putToken(r *request) (any, error) {
	if _, err := tokens().update(r); err != nil {
		return nil, err
	}

	info, _ := tokenInfo(r)

	return info, nil
}
