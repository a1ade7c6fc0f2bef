package proxmox

import (
	"net/http"
	"slices"
	"strings"

	"talos-proxmox/lab/datacentre"
)

// mayCreateUser needs the realm and, for every group that is named, the group.
func mayCreateUser(r *request) error {
	if err := mayAllocateUser(r); err != nil {
		return err
	}

	return mayModifyGroups(r)
}

// mayDeleteUser needs the realm, and one of the user's groups.
func mayDeleteUser(r *request) error {
	if err := mayAllocateUser(r); err != nil {
		return err
	}

	return onAccount("User.Modify")(r)
}

// mayUpdateUser needs every group that is named, and one of the user's: who names none needs them all.
func mayUpdateUser(r *request) error {
	if _, err := namedUser(r); err != nil {
		return err
	}

	if err := mayModifyGroups(r); err != nil {
		return err
	}

	return onAccount("User.Modify")(r)
}

func mayAllocateUser(r *request) error {
	id := r.fill("{userid}")

	switch _, realm, ok := strings.Cut(id, "@"); {
	case id == "{userid}":
		return &datacentre.Error{Status: http.StatusInternalServerError, Message: "user name '' is too short"}
	case !ok || strings.ContainsAny(id, " :/"):
		return badUser(id)
	default:
		return r.dc.Authorise(r.user, "/access/realm/"+realm, "Realm.AllocateUser")
	}
}

func badUser(id string) error {
	return &datacentre.Error{
		Status: http.StatusInternalServerError, Message: "value '" + id + "' does not look like a valid user name",
	}
}

func mayModifyGroups(r *request) error {
	if r.dc.Allowed(r.user, "/access/groups", "User.Modify") {
		return nil
	}

	groups := r.params.list("groups")
	if len(groups) == 0 {
		return r.dc.Authorise(r.user, "/access/groups", "User.Modify")
	}

	for _, g := range groups {
		if err := r.dc.Authorise(r.user, "/access/groups/"+g, "User.Modify"); err != nil {
			return err
		}
	}

	return nil
}

// onAccount lets those through who have a privilege on all groups or on one of the user's.
func onAccount(privileges ...string) func(*request) error {
	return func(r *request) error {
		if _, err := namedUser(r); err != nil {
			return err
		}

		if r.dc.Allowed(r.user, "/access/groups", privileges...) {
			return nil
		}

		for _, g := range r.dc.Groups() {
			if slices.Contains(g.Users, r.fill("{userid}")) && r.dc.Allowed(r.user, "/access/groups/"+g.ID, privileges...) {
				return nil
			}
		}

		return datacentre.Forbidden("")
	}
}

// ownAccount lets a user at his own things, and those who administrate him.
func ownAccount(r *request) error {
	if r.user == r.fill("{userid}") {
		return nil
	}

	if _, err := namedUser(r); err != nil {
		return datacentre.Forbidden("")
	}

	return onAccount("User.Modify")(r)
}

// ownPassword is not for tokens: who finds one must not take the account over.
func ownPassword(r *request) error {
	if strings.Contains(r.user, "!") {
		return datacentre.Forbidden("URI '/access/password' not available with API token, need proper ticket.\n")
	}

	return ownAccount(r)
}
