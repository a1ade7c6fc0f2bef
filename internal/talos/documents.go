package talos

import (
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"
)

// checkKnown refuses what the Talos provider cannot read: it would fail in the middle of an up.
func checkKnown(document string) error {
	var patch map[string]any
	if err := yaml.Unmarshal([]byte(document), &patch); err != nil {
		return nil //nolint:nilerr // Talos' own loader says what is wrong with it
	}

	provider, err := ofContract(Provider)
	if err != nil {
		return err
	}

	var problems []error

	for _, a := range provider.Beyond(patch) {
		name := "the document " + a.Kind
		if a.Field != "" {
			name = "the field " + strings.TrimPrefix(a.Kind+"."+a.Field, "v1alpha1.")
		}

		problems = append(problems, fmt.Errorf("%s is of Talos %s, and the Talos provider reads configurations up to Talos %s: "+
			"write it as that version does, or omit it", name, a.Release, Provider))
	}

	return errors.Join(problems...)
}

// Addition is what appeared with a release of Talos in its configurations.
type Addition struct {
	// Release is the minor version with its v, Kind the document's: v1alpha1 is the first one, Kind/name one that is new
	// under that name only.
	Release, Kind string
	// Field is a new field's path; empty = the document itself is new.
	Field string
}

// Reads says whether the release reads a kind of documents, or Kind/name of those that are read under some names only.
func (r Release) Reads(document string) bool {
	kind, name, _ := strings.Cut(document, "/")

	return len(r.Beyond(map[string]any{"kind": kind, "name": name})) == 0
}

// Beyond returns what a document has that appeared after the release: itself, or fields of it.
func (r Release) Beyond(document map[string]any) []Addition {
	var found []Addition

	for _, later := range Releases() {
		if minorVersion(r.Talos).before(minorVersion(later.Talos)) {
			found = append(found, later.addsOf(document)...)
		}
	}

	return found
}

// addsOf returns what a document has that appeared with the release.
func (r Release) addsOf(document map[string]any) []Addition {
	kind, _ := document["kind"].(string)
	name, _ := document["name"].(string)

	for added := range strings.FieldsSeq(r.Documents) {
		if added == kind || added == kind+"/"+name {
			return []Addition{{Release: r.Talos, Kind: added}}
		}
	}

	var found []Addition

	for added := range strings.FieldsSeq(r.Fields) {
		of, path, _ := strings.Cut(added, ".")
		if (of == kind || of == "v1alpha1" && kind == "") && has(document, strings.Split(path, ".")) {
			found = append(found, Addition{Release: r.Talos, Kind: of, Field: path})
		}
	}

	return found
}

// has says whether a document, or any entry of a list in it, has a value for a path.
func has(value any, path []string) bool {
	if len(path) == 0 {
		return true
	}

	switch value := value.(type) {
	case map[string]any:
		inner, stated := value[path[0]]

		return stated && has(inner, path[1:])
	case []any:
		for _, entry := range value {
			if has(entry, path) {
				return true
			}
		}
	}

	return false
}
