package charts

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"

	"talos-proxmox/internal/spec"
)

// UnknownValues names values that a chart does not know, which Helm passes over: at the top of the chart, and of each
// chart in it, what neither defaults nor templates name; below that what differs from a default's name by case or a
// letter or two. Other names are passed on: many maps of charts are for anything.
func UnknownValues(of *chart.Chart, values map[string]any) []string {
	r := valueChecker{files: allTemplates(of)}
	r.checkChart("", of, of.Values, values)

	return r.problems
}

// Merge adds values of one map to another, which wins where both have one.
func Merge(into, more map[string]any) { util.MergeTables(into, deepCopy(more)) }

// CheckSchema says what a chart, and those in it, do not take of values, by their own schemas.
func CheckSchema(of *chart.Chart, values map[string]any) error {
	own := copyChart(of) // which parts it has depends on values
	if err := chartutil.ProcessDependencies(own, values); err != nil {
		return err
	}

	merged, err := util.CoalesceValues(own, values)
	if err != nil {
		return err
	}

	return util.ValidateAgainstSchema(own, merged)
}

func copyChart(of *chart.Chart) *chart.Chart {
	own, metadata := *of, *of.Metadata
	own.Metadata = &metadata

	var parts []*chart.Chart
	for _, part := range of.Dependencies() {
		parts = append(parts, copyChart(part))
	}

	own.SetDependencies(parts...)

	return &own
}

// valueChecker compares values with what a chart reads of them.
type valueChecker struct {
	files    []*common.File
	problems []string
}

// allTemplates are those of a chart and of the charts in it, which read values by each other's names.
func allTemplates(of *chart.Chart) []*common.File {
	files := slices.Clone(of.Templates)
	for _, part := range of.Dependencies() {
		files = append(files, allTemplates(part)...)
	}

	return files
}

// checkChart looks at the values of a chart, and of those in it, whose defaults are also the outer one's.
func (r *valueChecker) checkChart(path string, of *chart.Chart, defaults, values map[string]any) {
	known := maps.Clone(defaults)
	if known == nil {
		known = map[string]any{}
	}

	for _, name := range []string{"global", "tags"} {
		if known[name] == nil {
			known[name] = map[string]any{}
		}
	}

	own := maps.Clone(values)

	for _, dependency := range of.Metadata.Dependencies {
		key := dependency.Name
		if dependency.Alias != "" {
			known[key], key = map[string]any{}, dependency.Alias // Helm refuses neither
		}

		outer, _ := defaults[key].(map[string]any)
		below, isMap := values[key].(map[string]any)
		known[key] = outer

		part := slices.IndexFunc(of.Dependencies(), func(c *chart.Chart) bool { return c.Name() == dependency.Name })
		if part < 0 || !isMap {
			continue
		}

		inner := of.Dependencies()[part]
		merged := util.MergeTables(deepCopy(outer), deepCopy(inner.Values))
		r.checkChart(path+key+".", inner, merged, below)
		delete(own, key)
	}

	r.checkKeys(path, known, own, r.readsAnyName())
}

// deepCopy is a map that can be merged into.
func deepCopy(values map[string]any) map[string]any {
	own := maps.Clone(values)
	if own == nil {
		return map[string]any{}
	}

	for key, value := range own {
		if below, ok := value.(map[string]any); ok {
			own[key] = deepCopy(below)
		}
	}

	return own
}

// checkKeys names values that are none of the chart's, with those that may be meant. passed says that other names go on
// to what the chart makes.
func (r *valueChecker) checkKeys(path string, known, values map[string]any, passedOn bool) {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if has, is := known[key]; is {
			below, isMap := has.(map[string]any)
			if own, ok := values[key].(map[string]any); ok && isMap {
				r.checkKeys(path+key+".", below, own, true)
			}

			continue
		}

		suggested := suggestion(key, slices.Sorted(maps.Keys(known)))

		switch {
		case r.readsName(key):
		case suggested != "":
			r.problems = append(r.problems, fmt.Sprintf("%s%s: write %s%s", path, key, path, suggested))
		case !passedOn:
			r.problems = append(r.problems, fmt.Sprintf("%s%s: remove it", path, key))
		}
	}
}

// readsName says whether a template has a value's name: .Values.….name, or in quotes, as functions take it.
func (r *valueChecker) readsName(key string) bool {
	name := regexp.QuoteMeta(key)

	return r.matches(regexp.MustCompile(`\.Values\.(?:\w+\.)*` + name + `\b|"` + name + `"`))
}

// allValues is a use of all values at once.
var allValues = regexp.MustCompile(`\.Values(?:\s*[)}|]|\s+[^\s"])`)

// readsAnyName says whether templates read values by names that they make: which, cannot be said.
func (r *valueChecker) readsAnyName() bool { return r.matches(allValues) }

func (r *valueChecker) matches(text *regexp.Regexp) bool {
	return slices.ContainsFunc(r.files, func(file *common.File) bool { return text.Match(file.Data) })
}

// suggestion is the name that a misspelt one is of; empty = none.
func suggestion(key string, names []string) string {
	const shortest = 5 // below that, names differ by a letter on purpose

	best, least := "", 3

	for _, name := range names {
		d := spec.Distance(strings.ToLower(key), strings.ToLower(name))
		if d < least && (d == 0 || len(key) >= shortest && len(name) >= shortest) {
			best, least = name, d
		}
	}

	return best
}
