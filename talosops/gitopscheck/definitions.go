package main

import "slices"

// definitionCharts maps groups of custom resources to the charts that install their definitions.
var definitionCharts = map[string]string{ //nolint:gochecknoglobals // a table
	"cert-manager.io": "cert-manager", "cilium.io": "cilium", "monitoring.coreos.com": "prometheus-operator-crds",
}

// checkDefinitions checks that components depend on those that install the definitions of their custom resources.
func (c *cluster) checkDefinitions() {
	components := map[string]string{} // by chart

	for comp, o := range c.objects() {
		if isRelease(o) {
			components[chartName(o)] = comp.name
		}
	}

	for comp, o := range c.objects() {
		for _, group := range definitionGroups(o) {
			provider, ok := components[definitionCharts[group]]

			switch {
			case !ok:
				c.report("%s needs definitions of %s from the chart %s, which the cluster does not have: list its folder",
					comp.at(o), group, definitionCharts[group])
			case provider != comp.name && !c.dependsOn(comp.name, provider, nil):
				c.report("%s needs definitions of %s from %s: add that to dependsOn of %s", comp.at(o), group, provider, comp.name)
			}
		}
	}
}

// definitionGroups returns the groups of custom resources that an object belongs to, or that its chart creates.
func definitionGroups(o object) []string {
	if _, known := definitionCharts[o.GroupVersionKind().Group]; known {
		return []string{o.GroupVersionKind().Group}
	}

	if !isRelease(o) {
		return nil
	}

	for _, key := range []string{"serviceMonitor", "servicemonitor", "podMonitor", "prometheusRule"} {
		for _, parent := range mapsWithKey(fields(o, "spec", "values"), key) {
			if monitor, ok := parent[key].(map[string]any); ok && monitor["enabled"] == true {
				return []string{"monitoring.coreos.com"}
			}
		}
	}

	if chartName(o) == "kube-prometheus-stack" {
		return []string{"monitoring.coreos.com"}
	}

	return nil
}

// dependsOn reports whether a component depends on another one, directly or not.
func (c *cluster) dependsOn(name, dependency string, visited []string) bool {
	i := slices.IndexFunc(c.components, func(comp *component) bool { return comp.name == name })
	if i < 0 || slices.Contains(visited, name) {
		return false
	}

	return slices.ContainsFunc(c.components[i].dependsOn, func(next string) bool {
		return next == dependency || c.dependsOn(next, dependency, append(visited, name))
	})
}
