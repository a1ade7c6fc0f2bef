package proxmox

import (
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/lab/datacentre"
)

// authorise checks the caller's permission by the API description.
func (r *request) authorise() error {
	switch p := r.route.Permissions; {
	case p.User == "world":
		return nil
	case !r.route.AllowToken && strings.Contains(r.user, "!"):
		return datacentre.Forbidden("URI '" + r.fill(r.route.path) + "' not available with API token, need proper ticket.\n")
	case r.user == "root@pam" || p.User == "all":
		return nil
	case p.Check == nil:
		return datacentre.Forbidden("user != root@pam")
	default:
		return r.evalCheck(p.Check)
	}
}

// evalCheck implements exec_api2_perm_check of PVE::RPCEnvironment.
func (r *request) evalCheck(check []any) error {
	switch kind, rest := castOrZero[string](check[0]), check[1:]; kind {
	case "and":
		for _, c := range rest {
			if err := r.evalCheck(castOrZero[[]any](c)); err != nil {
				return err
			}
		}

		return nil
	case "or":
		if slices.ContainsFunc(rest, func(c any) bool { return r.evalCheck(castOrZero[[]any](c)) == nil }) {
			return nil
		}

		return datacentre.Forbidden("")
	case "perm":
		return r.checkPrivileges(castOrZero[string](rest[0]), stringList(rest[1]), rest[2:])
	case "perm-modify":
		return r.checkPermModify(castOrZero[string](rest[0]))
	case "userid-param":
		return r.checkUserParam(castOrZero[string](rest[0]))
	default: // userid-group
		return r.checkUserGroups(stringList(rest[0]), options(rest[1:]))
	}
}

// Conversions of a check's decoded JSON.

func castOrZero[T any](v any) T {
	t, _ := v.(T)

	return t
}

func stringList(v any) []string {
	var out []string
	for _, w := range castOrZero[[]any](v) {
		out = append(out, castOrZero[string](w))
	}

	return out
}

func options(pairs []any) map[string]any {
	out := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		out[castOrZero[string](pairs[i])] = pairs[i+1]
	}

	return out
}

// checkPrivileges requires all privileges on a path, or any of them. PVE 8 has VM.Monitor instead of VM.GuestAgent.*.
func (r *request) checkPrivileges(template string, privileges []string, more []any) error {
	o := options(more)
	if name := castOrZero[string](o["require_param"]); name != "" && !r.params.Has(name) {
		return datacentre.Forbidden("")
	}

	if strings.HasPrefix(privileges[0], "VM.GuestAgent.") && r.dc.Release() == datacentre.PVE8 {
		privileges = []string{"VM.Monitor"}
	}

	path := r.fill(template)
	if missing := strings.Contains(path, "{"); !missing && datacentre.NormalizePath(path) == "" {
		return datacentre.Forbidden(", " + privileges[0]) // only root may use an invalid path
	}

	if o["any"] != nil {
		return r.dc.Authorise(r.user, path, privileges...)
	}

	for _, p := range privileges {
		if err := r.dc.Authorise(r.user, path, p); err != nil {
			return err
		}
	}

	return nil
}

// checkUserParam allows users to change themselves, or requires a privilege on the realm.
func (r *request) checkUserParam(what string) error {
	id := r.fill("{userid}")
	_, realm, ok := strings.Cut(id, "@")

	switch {
	case id == "{userid}":
		return datacentre.Refuse("user name '' is too short")
	case !ok || strings.ContainsAny(id, " :/"):
		return errInvalidUserName(id)
	case what == "self" && id != r.user:
		return datacentre.Forbidden("")
	case what == "self":
		return nil
	default:
		return r.dc.Authorise(r.user, "/access/realm/"+realm, what)
	}
}

func errInvalidUserName(id string) error {
	return datacentre.Refuse("value '%s' does not look like a valid user name", id)
}

// checkUserGroups requires a privilege on all groups, or on the named groups and one of the user's.
func (r *request) checkUserGroups(privileges []string, o map[string]any) error {
	named := castOrZero[string](o["groups_param"])

	if named != "create" {
		if _, err := users().find(r); err != nil {
			return err
		}
	}

	all := r.dc.Authorise(r.user, "/access/groups", privileges...)
	if all == nil {
		return nil
	}

	groups := r.params.List("groups")
	if named != "" && len(groups) == 0 {
		return all
	}

	for _, g := range groups {
		if err := r.dc.Authorise(r.user, "/access/groups/"+g, privileges...); named != "" && err != nil {
			return err
		}
	}

	if named == "create" || slices.ContainsFunc(userGroups(r, r.fill("{userid}")), func(group string) bool {
		return r.dc.Allowed(r.user, "/access/groups/"+group, privileges...)
	}) {
		return nil
	}

	return datacentre.Forbidden("")
}

// modifyPrivileges returns the privileges that allow changing a path's ACLs: who may allocate may also share.
func modifyPrivileges(path string) []string {
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

func (r *request) checkPermModify(template string) error {
	path := datacentre.NormalizePath(r.fill(template))
	if path == "" {
		return nil // the handler refuses it
	}

	return r.dc.Authorise(r.user, path, modifyPrivileges(path)...)
}

func (r *request) canSeeVM(id int) bool {
	return r.dc.Allowed(r.user, "/vms/"+strconv.Itoa(id), "VM.Audit")
}

func (r *request) canSeeStorage(name string) bool {
	return r.dc.Allowed(r.user, "/storage/"+name, "Datastore.Audit", "Datastore.AllocateSpace")
}

// canSeeBridge reports whether the caller may see a bridge, or one of its VLANs.
func (r *request) canSeeBridge(name string) bool {
	path := "/sdn/zones/localnetwork/" + name
	paths := []string{path}

	for _, a := range r.dc.ACLs() {
		if strings.HasPrefix(a.Path, path+"/") {
			paths = append(paths, a.Path)
		}
	}

	return slices.ContainsFunc(paths, func(p string) bool { return r.dc.Allowed(r.user, p, "SDN.Audit", "SDN.Use") })
}

// isTaskOwner reports whether the caller started the task; users also own the tasks of their tokens.
func (r *request) isTaskOwner(t datacentre.Task) bool {
	return t.User == r.user || strings.HasPrefix(t.User, r.user+"!")
}

// visibleTasks returns the tasks that the caller may see.
func (r *request) visibleTasks() []datacentre.Task {
	audits := map[string]bool{}
	for _, h := range r.dc.Hosts() {
		audits[h.Name] = r.dc.Allowed(r.user, "/nodes/"+h.Name, "Sys.Audit")
	}

	return slices.DeleteFunc(r.dc.Tasks(), func(t datacentre.Task) bool { return !audits[t.Host] && !r.isTaskOwner(t) })
}
