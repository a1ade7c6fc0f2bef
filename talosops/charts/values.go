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

// UnknownValues returns values that a chart does not know, which Helm would ignore: at the top level of the chart and
// of its subcharts, keys that neither the defaults nor the templates have; below that, only keys that differ from a
// default by case or a letter or two, because many maps of charts accept arbitrary keys.
func UnknownValues(c *chart.Chart, values map[string]any) []string {
	r := valueChecker{files: allTemplates(c)}
	r.checkChart("", c, c.Values, values)

	return r.problems
}

// Merge adds values to a map, whose own values take precedence.
func Merge(into, more map[string]any) { util.MergeTables(into, deepCopy(more)) }

// CheckSchema validates values against the schemas of a chart and its subcharts.
func CheckSchema(c *chart.Chart, values map[string]any) error {
	own := copyChart(c) // ProcessDependencies removes disabled subcharts
	if err := chartutil.ProcessDependencies(own, values); err != nil {
		return err
	}

	merged, err := util.CoalesceValues(own, values)
	if err != nil {
		return err
	}

	return util.ValidateAgainstSchema(own, merged)
}

func copyChart(c *chart.Chart) *chart.Chart {
	own, metadata := *c, *c.Metadata
	own.Metadata = &metadata

	var subcharts []*chart.Chart
	for _, subchart := range c.Dependencies() {
		subcharts = append(subcharts, copyChart(subchart))
	}

	own.SetDependencies(subcharts...)

	return &own
}

// valueChecker compares values with the defaults and templates of a chart.
type valueChecker struct {
	files    []*common.File
	problems []string
}

// allTemplates returns the templates of a chart and its subcharts, which use each other's helpers.
func allTemplates(c *chart.Chart) []*common.File {
	files := slices.Clone(c.Templates)
	for _, subchart := range c.Dependencies() {
		files = append(files, allTemplates(subchart)...)
	}

	return files
}

// checkChart checks the values of a chart and its subcharts. The defaults of a chart include those for its subcharts.
func (r *valueChecker) checkChart(path string, c *chart.Chart, defaults, values map[string]any) {
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

	for _, dependency := range c.Metadata.Dependencies {
		key := dependency.Name
		if dependency.Alias != "" {
			known[key], key = map[string]any{}, dependency.Alias // Helm accepts both
		}

		outer, _ := defaults[key].(map[string]any)
		below, isMap := values[key].(map[string]any)
		known[key] = outer

		i := slices.IndexFunc(c.Dependencies(), func(sub *chart.Chart) bool { return sub.Name() == dependency.Name })
		if i < 0 || !isMap {
			continue
		}

		inner := c.Dependencies()[i]
		merged := util.MergeTables(deepCopy(outer), deepCopy(inner.Values))
		r.checkChart(path+key+".", inner, merged, below)
		delete(own, key)
	}

	r.checkKeys(path, known, own, r.readsAnyName())
}

// deepCopy copies the nested maps of values, so that others can be merged into the copy.
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

// checkKeys reports unknown keys with a suggestion. passedOn says that the map may have arbitrary keys: then only
// misspelled ones are reported.
func (r *valueChecker) checkKeys(path string, known, values map[string]any, passedOn bool) {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if value, ok := known[key]; ok {
			below, isMap := value.(map[string]any)
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

// readsName reports whether a template has a value's name: .Values.….name, or in quotes, as an argument of a function.
func (r *valueChecker) readsName(key string) bool {
	name := regexp.QuoteMeta(key)

	return r.matches(regexp.MustCompile(`\.Values\.(?:\w+\.)*` + name + `\b|"` + name + `"`))
}

// allValues matches a use of .Values as a whole.
var allValues = regexp.MustCompile(`\.Values(?:\s*[)}|]|\s+[^\s"])`)

// readsAnyName reports whether a template uses .Values as a whole, so that it may read any key.
func (r *valueChecker) readsAnyName() bool { return r.matches(allValues) }

func (r *valueChecker) matches(text *regexp.Regexp) bool {
	return slices.ContainsFunc(r.files, func(file *common.File) bool { return text.Match(file.Data) })
}

// suggestion returns the name that a key is a misspelling of; empty = none.
func suggestion(key string, names []string) string {
	const shortest = 5 // shorter names often differ by one letter

	best, least := "", 3

	for _, name := range names {
		d := spec.Distance(strings.ToLower(key), strings.ToLower(name))
		if d < least && (d == 0 || len(key) >= shortest && len(name) >= shortest) {
			best, least = name, d
		}
	}

	return best
}
