package main

import "slices"

// bringers are the charts that bring definitions of custom resources, by the resources' group.
var bringers = map[string]string{ //nolint:gochecknoglobals // a table
	"cert-manager.io": "cert-manager", "cilium.io": "cilium", "monitoring.coreos.com": "prometheus-operator-crds",
}

// judgeDefinitions wants that what brings the definitions of a component's custom resources comes before it.
func (c *cluster) judgeDefinitions() {
	brought := map[string]string{} // by chart: the component

	for one, o := range c.objects() {
		if isRelease(o) {
			brought[chartOf(o)] = one.name
		}
	}

	for one, o := range c.objects() {
		for _, group := range groupsOf(o) {
			by, there := brought[bringers[group]]

			switch {
			case !there:
				c.report("%s needs definitions of %s, which the chart %s brings, and the cluster does not have that: list its folder",
					one.at(o), group, bringers[group])
			case by != one.name && !c.follows(one.name, by, nil):
				c.report("%s needs definitions of %s, which %s brings: add it to dependsOn of %s", one.at(o), group, by, one.name)
			}
		}
	}
}

// groupsOf are the groups of custom resources that an object is of, or makes by its chart.
func groupsOf(o object) []string {
	if _, known := bringers[o.GroupVersionKind().Group]; known {
		return []string{o.GroupVersionKind().Group}
	}

	if !isRelease(o) {
		return nil
	}

	for _, key := range []string{"serviceMonitor", "servicemonitor", "podMonitor", "prometheusRule"} {
		for _, parent := range withKey(fields(o, "spec", "values"), key) {
			if monitor, ok := parent[key].(map[string]any); ok && monitor["enabled"] == true {
				return []string{"monitoring.coreos.com"}
			}
		}
	}

	if chartOf(o) == "kube-prometheus-stack" {
		return []string{"monitoring.coreos.com"}
	}

	return nil
}

// follows says whether a component comes after another one, by dependsOn.
func (c *cluster) follows(name, before string, passed []string) bool {
	i := slices.IndexFunc(c.components, func(one *component) bool { return one.name == name })
	if i < 0 || slices.Contains(passed, name) {
		return false
	}

	return slices.ContainsFunc(c.components[i].dependsOn, func(next string) bool {
		return next == before || c.follows(next, before, append(passed, name))
	})
}
