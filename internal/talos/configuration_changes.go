package talos

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/types/runtime/extensions"
)

// ConfigurationChange is a change of one part of a machine configuration.
type ConfigurationChange struct {
	// Path is in the form of [ConfigurationDifferences].
	Path string
	// From and To are the values, with long texts cut off and secrets redacted; empty = none, or not shown.
	From, To string
	// Restart reports whether it takes effect only after a restart of the machine.
	Restart bool
}

// String returns the change in one line.
func (c ConfigurationChange) String() string {
	switch {
	case c.From != c.To:
		return fmt.Sprintf("%s: %s → %s", c.Path, cmp.Or(c.From, "none"), cmp.Or(c.To, "none"))
	case strings.Contains(c.From, redacted):
		return c.Path + ": another secret"
	default: // they differ in what is not shown
		return c.Path
	}
}

// ConfigurationChanges returns what changes between two machine configurations, sorted by path. Parts that Talos knows
// as secret are redacted; withValues = false shows no values at all. Errors quote nothing.
func ConfigurationChanges(before, after string, withValues bool) ([]ConfigurationChange, error) {
	paths, err := compareDocuments(after, before, differingLeaves)
	if err != nil {
		return nil, err
	}

	restart, err := ChangesRequiringRestart(before, after)
	if err != nil {
		return nil, err
	}

	var from, to map[string]string
	if withValues {
		from, to = shownValues(before), shownValues(after)
	}

	changes := make([]ConfigurationChange, 0, len(paths))

	for _, path := range paths {
		change := ConfigurationChange{Path: path, From: from[path], To: to[path], Restart: slices.Contains(restart, path)}
		if document, found := strings.CutSuffix(path, missingDocument); found {
			change.Path = document + ": added"
		} else if document, found := strings.CutSuffix(path, unplannedDocument); found {
			change.Path = document + ": removed"
		}

		changes = append(changes, change)
	}

	return changes, nil
}

const (
	// redacted replaces secrets.
	redacted = "(secret)"
	// shownLength is how many characters of a value are shown.
	shownLength = 80
)

// shownValues returns what is shown of a machine configuration's values, by path.
func shownValues(text string) map[string]string {
	values := map[string]string{}

	loaded, err := configloader.NewFromBytes([]byte(text))
	if err != nil {
		return values
	}

	encoded, err := loaded.RedactSecrets(redacted).EncodeString(encoder.WithComments(encoder.CommentsDisabled))
	if err != nil {
		return values
	}

	documents, err := readDocuments(encoded)
	if err != nil {
		return values
	}

	for name, document := range documents {
		prefix := name
		if name != "" {
			prefix += ": "
		}

		redactServices(document)
		addShownValues(values, prefix, "", document)
	}

	return values
}

// redactServices redacts the settings of an extension's service: most are credentials, and Talos does not know them as
// secret.
func redactServices(document object) {
	if document["kind"] != extensions.ServiceConfigKind {
		return
	}

	environment, _ := document["environment"].([]any)
	for i, variable := range environment {
		name, _, _ := strings.Cut(fmt.Sprint(variable), "=")
		environment[i] = name + "=" + redacted
	}

	files, _ := document["configFiles"].([]any)
	for _, file := range files {
		if file, ok := file.(object); ok {
			file["content"] = redacted
		}
	}
}

// addShownValues adds the values below a path.
func addShownValues(values map[string]string, prefix, path string, value any) {
	switch value := value.(type) {
	case object:
		for key, child := range value {
			addShownValues(values, prefix, childPath(path, key), child)
		}

		return
	case []any:
		for i, child := range value {
			addShownValues(values, prefix, fmt.Sprintf("%s[%d]", path, i), child)
		}
	}

	text, isText := value.(string)
	if !isText || strings.Contains(text, "\n") {
		encoded, err := json.Marshal(value)
		if err != nil {
			return
		}

		text = string(encoded)
	}

	if characters := []rune(text); len(characters) > shownLength {
		text = string(characters[:shownLength]) + "…"
	}

	values[prefix+path] = text
}
