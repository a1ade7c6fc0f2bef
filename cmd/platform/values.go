package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
)

// checkValues refuses values that the chart does not know, which Helm passes over: at the top what neither its defaults
// nor its templates name, below that what differs from a default's name by case or a letter or two. Other names are
// passed on: many maps of charts are for anything.
func checkValues(of *chart.Chart, values map[string]any) error {
	known := maps.Clone(of.Values)
	if known == nil {
		known = map[string]any{}
	}

	for _, name := range []string{"global", "tags"} {
		if known[name] == nil {
			known[name] = map[string]any{}
		}
	}

	for _, dependency := range of.Metadata.Dependencies {
		for _, name := range []string{dependency.Name, dependency.Alias} {
			if name != "" && known[name] == nil {
				known[name] = map[string]any{}
			}
		}
	}

	problems := unknownValues("", known, values, func(key string) bool { return namedInTemplates(of, key) })
	if len(problems) == 0 {
		return nil
	}

	return fmt.Errorf("the chart %s %s does not have these values, and would pass over them; %s:\n  %s",
		of.Name(), of.Metadata.Version, nothingChanged, strings.Join(problems, "\n  "))
}

// unknownValues names values that are none of the chart's, with those that may be meant. allowed says whether one at
// the top is another way a value of the chart.
func unknownValues(path string, known, values map[string]any, allowed func(key string) bool) []string {
	var problems []string

	for _, key := range slices.Sorted(maps.Keys(values)) {
		if has, is := known[key]; is {
			below, isMap := has.(map[string]any)
			if own, ok := values[key].(map[string]any); ok && isMap {
				problems = append(problems, unknownValues(path+key+".", below, own, func(string) bool { return true })...)
			}

			continue
		}

		meant := nearest(key, slices.Sorted(maps.Keys(known)))

		switch {
		case meant != "":
			problems = append(problems, fmt.Sprintf("%s%s: write %s%s", path, key, path, meant))
		case !allowed(key):
			problems = append(problems, fmt.Sprintf("%s%s: remove it", path, key))
		}
	}

	return problems
}

func namedInTemplates(of *chart.Chart, key string) bool {
	name := regexp.MustCompile(`\.Values\.` + regexp.QuoteMeta(key) + `\b`)

	return slices.ContainsFunc(of.Templates, func(file *common.File) bool { return name.Match(file.Data) })
}

// nearest is the name that a misspelt one is of; empty = none.
func nearest(key string, names []string) string {
	for _, name := range names {
		if strings.EqualFold(key, name) {
			return name
		}
	}

	const shortest = 5 // below that, names differ by a letter on purpose

	for _, name := range names {
		if len(key) >= shortest && len(name) >= shortest && distance(key, name) <= 2 {
			return name
		}
	}

	return ""
}

// distance is how many letters have to be changed, added or removed (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}

	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1

		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}

			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}

	return row[len(b)]
}
