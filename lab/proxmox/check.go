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
		if again, twice := given[name]; twice && again != value {
			wrong[name] = "duplicate parameter (already defined in URI) with conflicting values!"
		}

		given[name] = value

		delete(r.params, name)
	}

	for name := range given {
		rule, ok := r.route.Rule(name)

		switch complaints := rule.Check(name, given.Values(name)); {
		case !ok:
			wrong[name] = schema.Undefined
		case len(complaints) > 0:
			maps.Copy(wrong, complaints)
		case rule.Requires != "" && !given.Has(rule.Requires):
			wrong[rule.Requires] = schema.Needs(name)
		}
	}

	for name, rule := range r.route.Parameters {
		if !rule.Optional && !given.Has(name) {
			wrong[name] = schema.Missing
		}
	}

	switch {
	case len(wrong) > 0:
		return datacentre.ParameterError(wrong)
	case r.params.Bool("skiplock") && r.user != "root@pam":
		return datacentre.WrongParameter("skiplock", "Only root may use this option.")
	default:
		return nil
	}
}
