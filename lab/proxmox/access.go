package proxmox

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"talos-proxmox/lab/datacentre"
)

// accessCalls handle logins, roles, ACLs and effective permissions.
var accessCalls = map[string]handler{
	"POST /access/ticket":           postTicket,
	"GET /access/roles":             roles().list,
	"GET /access/roles/{roleid}":    roles().show,
	"POST /access/roles":            postRole,
	"PUT /access/roles/{roleid}":    roles().update,
	"DELETE /access/roles/{roleid}": roles().remove,
	"GET /access/acl":               listACL,
	"PUT /access/acl":               putACL,
	"GET /access/permissions":       getPermissions,
}

func roles() recordKind {
	return recordKind{
		Kind: datacentre.Roles, createCall: "POST /access/roles", idTemplate: "{roleid}", errorSubject: "role",
		addToRow: func(_ *request, _ string, role datacentre.Config, o object) {
			o["privs"], o["special"] = role["privs"], boolInt(role.Bool("special"))
		},
		detail: func(_ *request, _ string, role datacentre.Config, _ object) any {
			o := object{}
			for _, p := range role.List("privs") {
				o[p] = 1
			}

			return o
		},
		prepare: func(r *request, id string, old, record datacentre.Config) (err error) {
			list := r.params.List("privs")
			if r.params.Bool("append") {
				list = append(list, old.List("privs")...)
			}

			if old.Bool("special") {
				return datacentre.Refuse("auto-generated role '%s' cannot be modified", id)
			}

			record["privs"], err = r.dc.Privileges(list)

			return err
		},
		checkRemoval: func(_ *request, id string, role datacentre.Config) error {
			if role.Bool("special") {
				return datacentre.Refuse("auto-generated role '%s' cannot be deleted", id)
			}

			return nil
		},
	}
}

// postRole reserves names that begin with PVE.
func postRole(r *request) (any, error) {
	if strings.HasPrefix(strings.ToUpper(r.params["roleid"]), "PVE") {
		return nil, datacentre.WrongParameter(
			"roleid", "cannot use role ID starting with the (case-insensitive) 'PVE' namespace",
		)
	}

	return roles().create(r)
}

func listACL(r *request) (any, error) {
	return rows(r.dc.ACLs(), func(a datacentre.ACL) object {
		if !r.dc.Allowed(r.user, a.Path, modifyPrivileges(a.Path)...) {
			return nil
		}

		return object{"path": a.Path, "type": a.Kind, "ugid": a.ID, "roleid": a.Role, "propagate": boolInt(a.Propagate)}
	}), nil
}

func putACL(r *request) (any, error) {
	kinds := map[string]string{"users": "user", "groups": "group", "tokens": "token"}
	path := datacentre.NormalizePath(r.params["path"])

	if !slices.ContainsFunc(slices.Collect(maps.Keys(kinds)), r.params.Has) {
		const missing = "either 'users', 'groups' or 'tokens' is required."

		return nil, datacentre.ParameterError(map[string]string{"users": missing, "groups": missing, "tokens": missing})
	}

	if path == "" {
		return nil, datacentre.WrongParameter("path", "invalid ACL path '%s'", r.params["path"])
	}

	propagate := !r.params.Has("propagate") || r.params.Bool("propagate")

	for _, role := range r.params.List("roles") {
		if err := checkGrant(r, path, role, propagate); err != nil {
			return nil, err
		}

		for param, kind := range kinds {
			for _, id := range r.params.List(param) {
				a := datacentre.ACL{Path: path, Kind: kind, ID: id, Role: role, Propagate: propagate}

				set := r.dc.SetACL
				if r.params.Bool("delete") {
					set = r.dc.DeleteACL
				}

				if err := set(a); err != nil {
					return nil, err
				}
			}
		}
	}

	return nil, nil
}

// checkGrant refuses to grant more than the caller has, unless it has Permissions.Modify.
func checkGrant(r *request, path, role string, propagate bool) error {
	own := r.dc.Permissions(r.user, path)
	if _, ok := own["Permissions.Modify"]; ok {
		return nil
	}

	verb := "add"
	if r.params.Bool("delete") {
		verb = "remove"
	}

	// PVE wraps one parameter error in another: clients see the first line of the text.
	refuse := func(how string) error {
		return datacentre.Refuse("ACL update failed: 400 Parameter verification failed.\nrole: Cannot %s role '%s'%s", verb, role, how)
	}

	if role == "NoAccess" {
		return refuse(" - requires 'Permissions.Modify'")
	}

	granted, _ := r.dc.Record(datacentre.Roles, role)
	for _, p := range granted.List("privs") {
		canPropagate, ok := own[p]

		switch {
		case !ok:
			return refuse(" - requires 'Permissions.Modify' or superset of privileges.")
		case propagate && !canPropagate && verb == "add":
			return refuse(" with propagation - requires 'Permissions.Modify' or propagated superset of privileges.")
		}
	}

	return nil
}

// getPermissions shows callers their own permissions and those of their tokens.
func getPermissions(r *request) (any, error) {
	user := cmp.Or(r.params["userid"], r.user)

	if owner, _, _ := strings.Cut(user, "!"); user != r.user && owner != r.user {
		if err := r.dc.Authorise(r.user, "/access", "Sys.Audit"); err != nil {
			return nil, err
		}
	}

	paths := []string{r.params["path"]}
	if paths[0] == "" {
		paths = []string{"/", "/access", "/access/groups", "/nodes", "/pool", "/sdn", "/storage", "/vms"}
		for _, a := range r.dc.ACLs() {
			paths = append(paths, a.Path)
		}

		for _, vm := range r.dc.VMs() {
			if vm.Pool != "" {
				paths = append(paths, fmt.Sprintf("/vms/%d", vm.ID))
			}
		}
	}

	out := object{}

	for _, path := range paths {
		privileges := object{}
		for p, propagate := range r.dc.Permissions(user, path) {
			privileges[p] = boolInt(propagate)
		}

		if len(privileges) > 0 || r.params.Has("path") {
			out[path] = privileges
		}
	}

	return out, nil
}
