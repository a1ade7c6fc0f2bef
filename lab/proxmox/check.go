package proxmox

import (
	"maps"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/schema"
)

// check validates a call's parameters.
func (r *request) check() error {
	wrong := map[string]string{}
	given := maps.Clone(r.params)

	for name, value := range r.vars {
		if _, twice := given[name]; twice && given.get(name) != value {
			wrong[name] = "duplicate parameter (already defined in URI) with conflicting values!"
		}

		given[name] = []string{value}
	}

	for name, values := range given {
		rule, ok := r.route.Rule(name)

		switch complaints := rule.Check(name, values); {
		case !ok:
			wrong[name] = schema.Undefined
		case len(complaints) > 0:
			maps.Copy(wrong, complaints)
		case rule.Requires != "" && !given.has(rule.Requires):
			wrong[rule.Requires] = schema.Needs(name)
		}
	}

	for name, rule := range r.route.Parameters {
		if !rule.Optional && !given.has(name) {
			wrong[name] = schema.Missing
		}
	}

	switch {
	case len(wrong) > 0:
		return datacentre.ParameterError(wrong)
	case r.params.bool("skiplock") && r.user != "root@pam":
		return datacentre.WrongParameter("skiplock", "Only root may use this option.")
	default:
		return nil
	}
}
