package recording

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// volatileTexts differ from run to run; they are replaced by names.
var volatileTexts = []struct {
	words *regexp.Regexp
	name  string
}{
	{regexp.MustCompile(`UPID:([^:]+):[0-9A-F]+:[0-9A-F]+:[0-9A-F]+:`), "UPID:$1:"},
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "{uuid}"},
	{regexp.MustCompile(`BC:24:11(:[0-9A-F]{2}){3}`), "{mac}"},
	{regexp.MustCompile(`\b[0-9a-f]{40}\b`), "{digest}"},
	{regexp.MustCompile(`ctime=\d+`), "ctime={time}"},
	{regexp.MustCompile(`(tmp|tmp_dwnl)\.\d+`), "$1.{pid}"},
	{regexp.MustCompile(`(failed to get address info for: \S+): .*`), "$1: {why}"},
	{regexp.MustCompile(` at /\S+ line \d+\.`), ""},
}

// volatileNumbers are fields with numbers that depend on the host, not on the call.
var volatileNumbers = map[string]bool{"ctime": true, "used": true, "pid": true, "uptime": true, "starttime": true}

// normaliser replaces names and values that depend on the place.
type normaliser struct{ names *strings.Replacer }

func newNormaliser(p Place, token, web string) normaliser {
	id, secret, _ := strings.Cut(token, "=")

	return normaliser{strings.NewReplacer(
		secret, "{secret}", id, "{root}", web, "{web}", "'"+p.Node+"'", "'{node}'", "/"+p.Node+"/", "/{node}/",
		"="+p.Node+",", "={node},", ":"+p.Node+":", ":{node}:",
	)}
}

func (n normaliser) text(s string) string {
	s = n.names.Replace(s)
	for _, r := range volatileTexts {
		s = r.words.ReplaceAllString(s, r.name)
	}

	return s
}

// ownName matches the names and VMIDs of the recorder's objects.
var ownName = regexp.MustCompile(`(?i)rec-|\b99\d\d\b`)

// filterOwn reduces a list to the recorder's own objects.
func filterOwn(v any) any {
	list, ok := v.([]any)
	if !ok {
		return v
	}

	return slices.DeleteFunc(list, func(e any) bool { return !ownName.MatchString(canonical(e)) })
}

// value normalises a value of an answer and sorts lists, whose order is arbitrary.
func (n normaliser) value(v any) any {
	switch v := v.(type) {
	case string:
		return n.text(v)
	case []any:
		list := []any{}
		for _, e := range v {
			list = append(list, n.value(e))
		}

		slices.SortFunc(list, func(a, b any) int { return strings.Compare(canonical(a), canonical(b)) })

		return list
	case map[string]any:
		out := map[string]any{}

		for k, e := range v {
			if _, isNumber := e.(float64); isNumber && volatileNumbers[k] {
				e = "{" + k + "}"
			}

			out[n.text(k)] = n.value(e)
		}

		return out
	default:
		return v
	}
}

func canonical(v any) string {
	b, _ := marshal(v) //nolint:errcheck // it came from JSON

	return string(b)
}

// shape returns the types of an answer. Elements of a list share one; fields that some of them lack end in "?".
func shape(v any) any {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return "string"
	case bool:
		return "boolean"
	case float64, json.Number:
		return "number"
	case []any:
		return []any{shapeOfAll(v)}
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			out[k] = shape(e)
		}

		return out
	default:
		return "unknown"
	}
}

func shapeOfAll(list []any) any {
	kinds := map[string]any{}
	objects := []map[string]any{}

	for _, e := range list {
		s := shape(e)
		if o, ok := s.(map[string]any); ok {
			objects = append(objects, o)
		} else {
			kinds[canonical(s)] = s
		}
	}

	if len(objects) == 0 {
		return anyOf(kinds)
	}

	out := map[string]any{}
	counts := map[string]int{}
	types := map[string]map[string]any{}

	for _, o := range objects {
		for k, s := range o {
			if counts[k]++; types[k] == nil {
				types[k] = map[string]any{}
			}

			types[k][canonical(s)] = s
		}
	}

	for k, t := range types {
		name := k
		if counts[k] < len(objects) {
			name += "?"
		}

		out[name] = anyOf(t)
	}

	return out
}

// anyOf returns a type for several alternatives.
func anyOf(kinds map[string]any) any {
	if len(kinds) == 1 {
		for _, k := range kinds {
			return k
		}
	}

	return strings.Join(slices.Sorted(maps.Keys(kinds)), "|")
}
