package kube

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// setRequirement is the set-based form of a label selector's part: key in (a,b), key notin (a,b).
var setRequirement = regexp.MustCompile(`^\s*([^\s!=]+)\s+(in|notin)\s+\(([^)]*)\)\s*$`)

// matchesLabels applies a label selector.
func matchesLabels(selector string, labels map[string]string) bool {
	for _, part := range splitSelector(selector) {
		if !matchesRequirement(part, labels) {
			return false
		}
	}

	return true
}

// splitSelector splits at commas outside of parentheses.
func splitSelector(selector string) []string {
	var parts []string

	depth, from := 0, 0

	for i, r := range selector {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth == 0 {
				parts = append(parts, selector[from:i])
				from = i + 1
			}
		}
	}

	if strings.TrimSpace(selector[from:]) != "" {
		parts = append(parts, selector[from:])
	}

	return parts
}

func matchesRequirement(part string, labels map[string]string) bool {
	if m := setRequirement.FindStringSubmatch(part); m != nil {
		values := strings.Split(strings.ReplaceAll(m[3], " ", ""), ",")
		value, present := labels[m[1]]
		among := present && slices.Contains(values, value)

		return among == (m[2] == "in")
	}

	part = strings.TrimSpace(part)

	if key, value, found := strings.Cut(part, "!="); found {
		return labels[strings.TrimSpace(key)] != strings.TrimSpace(value)
	}

	if key, value, found := strings.Cut(strings.ReplaceAll(part, "==", "="), "="); found {
		have, present := labels[strings.TrimSpace(key)]

		return present && have == strings.TrimSpace(value)
	}

	if key, found := strings.CutPrefix(part, "!"); found {
		_, present := labels[strings.TrimSpace(key)]

		return !present
	}

	_, present := labels[part]

	return present
}

// matchesFields applies a field selector to the few fields that clients ask for.
func matchesFields(selector string, o Object) bool {
	for _, part := range splitSelector(selector) {
		key, value, _ := strings.Cut(strings.ReplaceAll(part, "==", "="), "=")
		negated := strings.HasSuffix(key, "!")
		key = strings.TrimSuffix(key, "!")

		have := ""

		switch key {
		case "metadata.name":
			have = o.Metadata.Name
		case "metadata.namespace":
			have = o.Metadata.Namespace
		case "spec.nodeName":
			have = o.Node()
		case "status.phase":
			if s, ok := o.Status.(PodStatus); ok {
				have = s.Phase
			}
		case "spec.unschedulable":
			have = "false"
			if s, ok := o.Spec.(NodeSpec); ok && s.Unschedulable {
				have = "true"
			}
		}

		if path, found := strings.CutPrefix(key, "involvedObject."); found {
			have = o.field("involvedObject", path)
		}

		if (have == value) == negated {
			return false
		}
	}

	return true
}

func selected(query url.Values, objects []Object) []Object {
	kept := make([]Object, 0, len(objects))

	for _, o := range objects {
		if matchesLabels(query.Get("labelSelector"), o.Metadata.Labels) && matchesFields(query.Get("fieldSelector"), o) {
			kept = append(kept, o)
		}
	}

	return kept
}
