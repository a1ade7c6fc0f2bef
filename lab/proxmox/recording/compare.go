package recording

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// Compare returns the differences between two lists of answers, each with its call.
func Compare(want, have []Answer) []string {
	var found []string

	for i, w := range want {
		if i >= len(have) || have[i].Call != w.Call {
			return append(found, w.Call+": was not made: record again")
		}

		for _, difference := range differences(w, have[i]) {
			found = append(found, w.Call+": "+difference)
		}
	}

	return found
}

func differences(want, have Answer) []string {
	if want.Status != have.Status || want.Reason != have.Reason {
		return []string{fmt.Sprintf("%d %q, here %d %q%s", want.Status, want.Reason, have.Status, have.Reason, errText(have))}
	}

	var found []string

	if want.Task != have.Task {
		found = append(found, fmt.Sprintf("its task ends with %q, here with %q", want.Task, have.Task))
	}

	if want.NoBody != have.NoBody {
		found = append(found, "only one answer has a body")
	}

	found = append(found, compare("errors", toAny(want.Errors), toAny(have.Errors))...)

	return append(found, compare("data", want.Data, have.Data)...)
}

// errText formats the errors of an unexpected answer.
func errText(a Answer) string {
	if len(a.Errors) == 0 {
		return ""
	}

	return " " + canonical(a.Errors)
}

func toAny(texts map[string]string) any {
	out := map[string]any{}
	for k, v := range texts {
		out[k] = v
	}

	return out
}

func compare(path string, want, have any) []string {
	var found []string

	switch w := want.(type) {
	case map[string]any:
		h, ok := have.(map[string]any)
		if !ok {
			break
		}

		for _, k := range slices.Sorted(maps.Keys(w)) {
			if v, ok := h[k]; ok {
				found = append(found, compare(path+"."+k, w[k], v)...)
			} else {
				found = append(found, fmt.Sprintf("%s.%s is %s, here missing", path, k, canonical(w[k])))
			}
		}

		for _, k := range slices.Sorted(maps.Keys(h)) {
			if _, ok := w[k]; !ok {
				found = append(found, fmt.Sprintf("%s.%s is missing, here %s", path, k, canonical(h[k])))
			}
		}

		return found
	case []any:
		h, ok := have.([]any)
		if !ok || len(h) != len(w) {
			break
		}

		for i := range w {
			found = append(found, compare(path+"["+strconv.Itoa(i)+"]", w[i], h[i])...)
		}

		return found
	}

	if canonical(want) != canonical(have) {
		return []string{fmt.Sprintf("%s is %s, here %s", path, canonical(want), canonical(have))}
	}

	return nil
}
