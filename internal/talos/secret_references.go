package talos

import (
	"encoding/base64"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// shortestReferred is the length from which a secret is replaced by a reference to it.
const shortestReferred = 16

// WithReferences replaces machine secrets in a machine configuration by references to them, $(certs.os.key), for texts
// that are kept beside the secrets. Secrets are the machine secrets of the provider's resource. A configuration that
// [WithoutReferences] would not restore stays as it is.
func WithReferences(configuration string, secrets map[string]any) string {
	text := configuration

	values := flatSecrets(secrets, "")
	for _, path := range slices.Sorted(maps.Keys(values)) {
		value := values[path]
		if len(value) < shortestReferred {
			continue
		}

		text = strings.ReplaceAll(text, value, "$("+path+")")

		if lines := pemLines(value); len(lines) > 0 {
			text = replaceBlocks(text, lines, "$("+path+":pem)")
		}
	}

	if WithoutReferences(text, secrets) != configuration {
		return configuration
	}

	return text
}

var secretReference = regexp.MustCompile(`(?m)^( *)\$\(([\w.]+):pem\)|\$\(([\w.]+)\)`)

// WithoutReferences is the opposite of [WithReferences]. References to what the secrets do not have stay.
func WithoutReferences(text string, secrets map[string]any) string {
	values := flatSecrets(secrets, "")

	return secretReference.ReplaceAllStringFunc(text, func(reference string) string {
		found := secretReference.FindStringSubmatch(reference)
		indentation, asPEM, asValue := found[1], found[2], found[3]

		if value, known := values[asValue]; known {
			return value
		}

		value, known := values[asPEM]
		if !known {
			return reference
		}

		return indentation + strings.Join(pemLines(value), "\n"+indentation)
	})
}

// pemLines returns the lines of a certificate or key of the secrets; empty if the value is none.
func pemLines(value string) []string {
	decoded, err := base64.StdEncoding.DecodeString(value)
	if err != nil || !strings.HasPrefix(string(decoded), "-----BEGIN ") {
		return nil
	}

	return strings.Split(strings.TrimSuffix(string(decoded), "\n"), "\n")
}

// replaceBlocks replaces lines wherever they are, with any indentation.
func replaceBlocks(text string, lines []string, with string) string {
	const everywhere = `(?m)^( *)%s$`

	expression := regexp.QuoteMeta(lines[0])
	for _, line := range lines[1:] {
		expression += `\n *` + regexp.QuoteMeta(line)
	}

	with = "${1}" + strings.ReplaceAll(with, "$", "$$")

	return regexp.MustCompile(fmt.Sprintf(everywhere, expression)).ReplaceAllString(text, with)
}

// flatSecrets returns the texts in a value by their paths.
func flatSecrets(value any, path string) map[string]string {
	flat := map[string]string{}

	switch value := value.(type) {
	case string:
		flat[path] = value
	case map[string]any:
		for key, part := range value {
			below := key
			if path != "" {
				below = path + "." + key
			}

			maps.Copy(flat, flatSecrets(part, below))
		}
	}

	return flat
}
