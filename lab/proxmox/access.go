package proxmox

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"talos-proxmox/lab/datacentre"
)

// aclRoutes are roles, rules and the permissions that follow from them; users, tokens and groups are in accounts.go.
func aclRoutes() []route {
	return []route{
		{method: "GET", path: "/access/roles", handle: listRoles},
		{method: "GET", path: "/access/roles/{roleid}", handle: getRole},
		{
			method: "POST", path: "/access/roles", params: "roleid* privs", privilege: "Sys.Modify", path2: "/access",
			handle: postRole,
		},
		{
			method: "PUT", path: "/access/roles/{roleid}", params: "privs append", privilege: "Sys.Modify", path2: "/access",
			handle: func(r *request) (any, error) {
				return done(r.dc.SetRole(r.vars["roleid"], r.params.bool("append"), r.params.list("privs")...))
			},
		},
		{
			method: "DELETE", path: "/access/roles/{roleid}", privilege: "Sys.Modify", path2: "/access",
			handle: func(r *request) (any, error) { return done(r.dc.DeleteRole(r.vars["roleid"])) },
		},
		{method: "GET", path: "/access/acl", handle: listACL},
		{
			method: "PUT",
			path:   "/access/acl",
			params: "path* roles* users groups tokens propagate delete",
			allow:  mayModify,
			handle: putACL,
		},
		{method: "GET", path: "/access/permissions", params: "path userid", allow: mayDump, handle: getPermissions},
	}
}

// postRole keeps the names that begin with PVE for Proxmox itself.
func postRole(r *request) (any, error) {
	id := r.params.get("roleid")
	if strings.HasPrefix(strings.ToUpper(id), "PVE") {
		return nil, datacentre.ParameterError(
			map[string]string{"roleid": "cannot use role ID starting with the (case-insensitive) 'PVE' namespace"},
		)
	}

	return done(r.dc.AddRole(id, r.params.list("privs")...))
}

func listRoles(r *request) (any, error) {
	list := []object{}
	for _, role := range r.dc.Roles() {
		list = append(
			list, object{"roleid": role.ID, "privs": strings.Join(role.Privileges, ","), "special": flag(role.Special)},
		)
	}

	return list, nil
}

func getRole(r *request) (any, error) {
	for _, role := range r.dc.Roles() {
		if role.ID != r.vars["roleid"] {
			continue
		}

		o := object{}
		for _, p := range role.Privileges {
			o[p] = 1
		}

		return o, nil
	}

	return nil, &datacentre.Error{Status: 500, Message: "role '" + r.vars["roleid"] + "' does not exist"}
}

// modifiers are the privileges that change the rules of a path: those who may make things may share them.
func modifiers(path string) []string {
	list := []string{"Permissions.Modify"}

	for prefix, p := range map[string]string{
		"/storage/": "Datastore.Allocate", "/vms/": "VM.Allocate", "/pool/": "Pool.Allocate",
	} {
		if strings.HasPrefix(path, prefix) {
			list = append(list, p)
		}
	}

	return list
}

func mayModify(r *request) error {
	path := datacentre.NormalPath(r.params.get("path"))
	if path == "" {
		return nil // the parameters' own check refuses it
	}

	return r.dc.Authorise(r.user, path, modifiers(path)...)
}

func listACL(r *request) (any, error) {
	list := []object{}

	for _, a := range r.dc.ACLs() {
		if r.dc.Allowed(r.user, a.Path, modifiers(a.Path)...) {
			list = append(
				list, object{"path": a.Path, "type": a.Kind, "ugid": a.ID, "roleid": a.Role, "propagate": flag(a.Propagate)},
			)
		}
	}

	return list, nil
}

func putACL(r *request) (any, error) {
	kinds := map[string]string{"users": "user", "groups": "group", "tokens": "token"}
	path := datacentre.NormalPath(r.params.get("path"))

	if !slices.ContainsFunc(slices.Collect(maps.Keys(kinds)), r.params.has) {
		const missing = "either 'users', 'groups' or 'tokens' is required."

		return nil, datacentre.ParameterError(map[string]string{"users": missing, "groups": missing, "tokens": missing})
	}

	if path == "" {
		return nil, datacentre.ParameterError(map[string]string{"path": "invalid ACL path '" + r.params.get("path") + "'"})
	}

	propagate := !r.params.has("propagate") || r.params.bool("propagate")

	for _, role := range r.params.list("roles") {
		if err := maySpread(r, path, role, propagate); err != nil {
			return nil, err
		}

		for param, kind := range kinds {
			for _, id := range r.params.list(param) {
				a := datacentre.ACL{Path: path, Kind: kind, ID: id, Role: role, Propagate: propagate}

				set := r.dc.SetACL
				if r.params.bool("delete") {
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

// maySpread lets those without Permissions.Modify grant no more than they have.
func maySpread(r *request, path, role string, propagate bool) error {
	has := r.dc.Permissions(r.user, path)
	if _, ok := has["Permissions.Modify"]; ok {
		return nil
	}

	verb := "add"
	if r.params.bool("delete") {
		verb = "remove"
	}

	// PVE puts its own refusal of a parameter behind another one: of the text, the first line is seen.
	wrong := func(how string) error {
		return &datacentre.Error{
			Status:  http.StatusInternalServerError,
			Message: "ACL update failed: 400 Parameter verification failed.\nrole: Cannot " + verb + " role '" + role + "'" + how,
		}
	}

	if role == "NoAccess" {
		return wrong(" - requires 'Permissions.Modify'")
	}

	for _, known := range r.dc.Roles() {
		if known.ID != role {
			continue
		}

		for _, p := range known.Privileges {
			below, ok := has[p]

			switch {
			case !ok:
				return wrong(" - requires 'Permissions.Modify' or superset of privileges.")
			case propagate && !below && verb == "add":
				return wrong(" with propagation - requires 'Permissions.Modify' or propagated superset of privileges.")
			}
		}
	}

	return nil
}

// mayDump lets everyone see what they themselves may do, and their tokens.
func mayDump(r *request) error {
	whose := r.params.get("userid")
	if owner, _, _ := strings.Cut(whose, "!"); whose == "" || whose == r.user || owner == r.user {
		return nil
	}

	return r.dc.Authorise(r.user, "/access", "Sys.Audit")
}

func getPermissions(r *request) (any, error) {
	whose := r.params.get("userid")
	if whose == "" {
		whose = r.user
	}

	paths := []string{r.params.get("path")}
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

		for _, pool := range r.dc.Pools() {
			for _, storage := range pool.Storages {
				paths = append(paths, "/storage/"+storage)
			}
		}
	}

	out := object{}

	for _, path := range paths {
		has := object{}
		for p, propagate := range r.dc.Permissions(whose, path) {
			has[p] = flag(propagate)
		}

		if len(has) > 0 || r.params.has("path") {
			out[path] = has
		}
	}

	return out, nil
}

// capabilities are what a ticket says its user may do anywhere: for interfaces that hide what cannot be done.
func capabilities(dc *datacentre.Datacentre, user string) object {
	kinds := map[string][]string{
		"vms": {"VM."}, "access": {"User.", "Group."}, "storage": {"Datastore."}, "nodes": {"Sys."}, "sdn": {"SDN."},
		"dc": {"Sys.Audit", "Sys.Modify", "SDN."}, "mapping": {"Mapping."},
	}
	paths := map[string][]string{
		"vms":     {"/vms"},
		"access":  {"/access/groups"},
		"storage": {"/storage"},
		"nodes":   {"/nodes"},
		"sdn":     {"/sdn"},
		"dc":      {"/"},
		"mapping": {"/mapping"},
	}

	for _, a := range dc.ACLs() {
		top, _, _ := strings.Cut(strings.TrimPrefix(a.Path, "/"), "/")
		paths[top] = append(paths[top], a.Path)
	}

	out := object{}

	for kind, prefixes := range kinds {
		has := object{}

		for _, path := range paths[kind] {
			for p := range dc.Permissions(user, path) {
				if p == "Permissions.Modify" && kind != "dc" ||
					slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(p, prefix) }) {
					has[p] = 1
				}
			}
		}

		out[kind] = has
	}

	return out
}
