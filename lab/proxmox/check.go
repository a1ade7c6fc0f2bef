package proxmox

import (
	"maps"
	"slices"
	"strings"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/schema"
)

// uploaded is the parameter that holds an uploaded file's bytes; no client can send one of that name.
const uploaded = "\x00file"

// Method is a call that the lab implements.
type Method struct {
	// Method is GET, POST, PUT or DELETE; Path is PVE's own template.
	Method, Path string
	// Parameters are all it takes, those of the path too, by PVE's names: scsi[n] stands for all of scsi0, scsi1, …
	Parameters map[string]schema.Rule
}

// Methods returns the calls that the lab implements, by path and method.
func Methods() []Method {
	var list []Method

	for _, rt := range newRouter().routes {
		m := Method{Method: rt.method, Path: rt.path, Parameters: maps.Clone(rt.rules)}

		if rt.config {
			for key, rule := range schema.ConfigKeys() {
				m.Parameters[key] = rule
			}
		}

		list = append(list, m)
	}

	slices.SortFunc(list, func(a, b Method) int { return strings.Compare(a.Path+" "+a.Method, b.Path+" "+b.Method) })

	return list
}

// prepare reads the route's notation. A parameter without a rule is a mistake in the table: it is taken as it comes,
// and a test finds it.
func (rt *route) prepare() {
	rt.segments = strings.Split(strings.Trim(rt.path, "/"), "/")
	rt.rules = map[string]schema.Rule{}

	for p := range strings.FieldsSeq(rt.params) {
		name, required := strings.CutSuffix(p, "*")
		if name == "config" {
			rt.config = true

			continue
		}

		rt.add(name, required)
	}

	for _, s := range rt.segments {
		if name, ok := strings.CutPrefix(s, "{"); ok {
			rt.add(strings.TrimSuffix(name, "}"), true)
		}
	}
}

func (rt *route) add(name string, required bool) {
	rule, ok := schema.Parameter(rt.method, rt.path, name)
	if !ok {
		rule.Type = schema.String
	}

	rule.Required = required
	rt.rules[name] = rule
}

func (rt *route) rule(name string) (schema.Rule, bool) {
	if rule, ok := rt.rules[name]; ok || !rt.config {
		return rule, ok
	}

	return schema.Config(name)
}

// check validates a call's parameters: the one place for PVE's schema.
func (rt *route) check(r *request) error {
	wrong := map[string]string{}
	given := maps.Clone(r.params)

	for name, value := range r.vars {
		if _, twice := given[name]; twice && given.get(name) != value {
			wrong[name] = "duplicate parameter (already defined in URI) with conflicting values!"
		}

		given[name] = []string{value}
	}

	for name, values := range given {
		rule, ok := rt.rule(name)

		switch complaints := rule.Check(name, values); {
		case name == uploaded:
		case !ok:
			wrong[name] = schema.Undefined
		case len(complaints) > 0:
			maps.Copy(wrong, complaints)
		case rule.Requires != "" && !given.has(rule.Requires):
			wrong[rule.Requires] = schema.Needs(name)
		}
	}

	for name, rule := range rt.rules {
		if rule.Required && !given.has(name) {
			wrong[name] = schema.Missing
		}
	}

	if len(wrong) > 0 {
		return datacentre.ParameterError(wrong)
	}

	return nil
}
