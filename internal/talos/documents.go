package talos

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// checkReleaseReads returns an error for the parts of a patch that releases after version added.
func checkReleaseReads(version, patch string) error {
	release, err := ReleaseOf(version)
	if err != nil {
		return err
	}

	documents, err := readDocuments(patch)
	if err != nil {
		return nil //nolint:nilerr // Talos' own loader reports it
	}

	var problems []error

	for _, kind := range slices.Sorted(maps.Keys(documents)) {
		for _, addition := range release.AddedLater(documents[kind]) {
			name := "the document " + addition.Kind
			if addition.Field != "" {
				name = "the field " + strings.TrimPrefix(addition.Kind+"."+addition.Field, "v1alpha1.")
			}

			problems = append(problems, fmt.Errorf("%s is of Talos %s, and this machine runs %s: write it as that release does, or omit it",
				name, addition.Release, version))
		}
	}

	return errors.Join(problems...)
}

// Addition is a document or field that a release of Talos added to configurations.
type Addition struct {
	// Release is the minor version with its v. Kind is the document's kind: v1alpha1 for the first document, Kind/name if
	// only that name is new.
	Release, Kind string
	// Field is the path of a new field; empty = the document itself is new.
	Field string
}

// Reads reports whether the release accepts a document, given as Kind or Kind/name.
func (r Release) Reads(document string) bool {
	kind, name, _ := strings.Cut(document, "/")

	return len(r.AddedLater(map[string]any{"kind": kind, "name": name})) == 0
}

// AddedLater returns the parts of a document that later releases added: the document itself, or fields of it.
func (r Release) AddedLater(document map[string]any) []Addition {
	var found []Addition

	for _, later := range Releases() {
		if minorVersion(r.Talos).before(minorVersion(later.Talos)) {
			found = append(found, later.additionsIn(document)...)
		}
	}

	return found
}

// additionsIn returns the parts of a document that the release added.
func (r Release) additionsIn(document map[string]any) []Addition {
	kind, _ := document["kind"].(string)
	name, _ := document["name"].(string)

	for added := range strings.FieldsSeq(r.Documents) {
		if added == kind || added == kind+"/"+name {
			return []Addition{{Release: r.Talos, Kind: added}}
		}
	}

	var found []Addition

	for added := range strings.FieldsSeq(r.Fields) {
		documentKind, path, _ := strings.Cut(added, ".")
		if (documentKind == kind || documentKind == "v1alpha1" && kind == "") && hasPath(document, strings.Split(path, ".")) {
			found = append(found, Addition{Release: r.Talos, Kind: documentKind, Field: path})
		}
	}

	return found
}

// hasPath reports whether a document has a value at a path; lists match if any entry does.
func hasPath(value any, path []string) bool {
	if len(path) == 0 {
		return true
	}

	switch value := value.(type) {
	case map[string]any:
		inner, ok := value[path[0]]

		return ok && hasPath(inner, path[1:])
	case []any:
		for _, entry := range value {
			if hasPath(entry, path) {
				return true
			}
		}
	}

	return false
}
