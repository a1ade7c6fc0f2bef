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
	r := reader{files: templates(of)}
	r.compare("", of, of.Values, values)

	return r.problems
}

// Merge adds values of one map to another, which wins where both have one.
func Merge(into, more map[string]any) { util.MergeTables(into, copied(more)) }

// CheckSchema says what a chart, and those in it, do not take of values, by their own schemas.
func CheckSchema(of *chart.Chart, values map[string]any) error {
	own := copyOf(of) // which parts it has depends on values
	if err := chartutil.ProcessDependencies(own, values); err != nil {
		return err
	}

	merged, err := util.CoalesceValues(own, values)
	if err != nil {
		return err
	}

	return util.ValidateAgainstSchema(own, merged)
}

func copyOf(of *chart.Chart) *chart.Chart {
	own, metadata := *of, *of.Metadata
	own.Metadata = &metadata

	var parts []*chart.Chart
	for _, part := range of.Dependencies() {
		parts = append(parts, copyOf(part))
	}

	own.SetDependencies(parts...)

	return &own
}

// reader compares values with what a chart reads of them.
type reader struct {
	files    []*common.File
	problems []string
}

// templates are those of a chart and of the charts in it, which read values by each other's names.
func templates(of *chart.Chart) []*common.File {
	files := slices.Clone(of.Templates)
	for _, part := range of.Dependencies() {
		files = append(files, templates(part)...)
	}

	return files
}

// compare looks at the values of a chart, and of those in it, whose defaults are also the outer one's.
func (r *reader) compare(path string, of *chart.Chart, defaults, values map[string]any) {
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
		merged := util.MergeTables(copied(outer), copied(inner.Values))
		r.compare(path+key+".", inner, merged, below)
		delete(own, key)
	}

	r.unknown(path, known, own, r.readAny())
}

// copied is a map that can be merged into.
func copied(values map[string]any) map[string]any {
	own := maps.Clone(values)
	if own == nil {
		return map[string]any{}
	}

	for key, value := range own {
		if below, ok := value.(map[string]any); ok {
			own[key] = copied(below)
		}
	}

	return own
}

// unknown names values that are none of the chart's, with those that may be meant. passed says that other names go on
// to what the chart makes.
func (r *reader) unknown(path string, known, values map[string]any, passed bool) {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if has, is := known[key]; is {
			below, isMap := has.(map[string]any)
			if own, ok := values[key].(map[string]any); ok && isMap {
				r.unknown(path+key+".", below, own, true)
			}

			continue
		}

		meant := nearest(key, slices.Sorted(maps.Keys(known)))

		switch {
		case r.reads(key):
		case meant != "":
			r.problems = append(r.problems, fmt.Sprintf("%s%s: write %s%s", path, key, path, meant))
		case !passed:
			r.problems = append(r.problems, fmt.Sprintf("%s%s: remove it", path, key))
		}
	}
}

// reads says whether a template has a value's name: .Values.….name, or in quotes, as functions take it.
func (r *reader) reads(key string) bool {
	name := regexp.QuoteMeta(key)

	return r.has(regexp.MustCompile(`\.Values\.(?:\w+\.)*` + name + `\b|"` + name + `"`))
}

// wholly is a use of all values at once.
var wholly = regexp.MustCompile(`\.Values(?:\s*[)}|]|\s+[^\s"])`)

// readAny says whether templates read values by names that they make: which, cannot be said.
func (r *reader) readAny() bool { return r.has(wholly) }

func (r *reader) has(text *regexp.Regexp) bool {
	return slices.ContainsFunc(r.files, func(file *common.File) bool { return text.Match(file.Data) })
}

// nearest is the name that a misspelt one is of; empty = none.
func nearest(key string, names []string) string {
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
