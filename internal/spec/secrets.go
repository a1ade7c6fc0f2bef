package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"talos-proxmox/internal/problem"
)

// Blinded replaces an encrypted value that is not decrypted, as in Pulumi's output.
const Blinded = "[secret]"

// secrets are the paths of encrypted values: whole keys (clusters), or single values (clusters[0].patches[1]). Texts
// under the keys of [CanBeSecret] remain secret. Everything else names resources, or is reviewed by people and
// policies, and remains visible.
type secrets []string

// contains reports whether a path is that of a secret, or below one.
func (s secrets) contains(path string) bool {
	return slices.ContainsFunc(s, func(secret string) bool { return problem.Under(path, secret) })
}

// overlaps reports whether anything at, above or below a path is secret.
func (s secrets) overlaps(path string) bool {
	return s.contains(path) || slices.ContainsFunc(s, func(secret string) bool { return problem.Under(secret, path) })
}

// redact removes encrypted values from problems.
func (s secrets) redact(found problem.List) problem.List {
	for i := range found {
		if s.overlaps(found[i].Path) {
			found[i].Value = ""
		}
	}

	return found
}

// isSingleValue reports whether the value at a path is itself encrypted.
func (s secrets) isSingleValue(path string) bool {
	return strings.ContainsAny(path, ".[") && slices.Contains(s, path)
}

// findSecrets returns the secrets of the configuration. The engine reports only whole keys: one encrypted patch makes
// all of clusters a secret. If the stack's file has the rest of the key in plain text, only its encrypted values are
// secrets.
func findSecrets(parsed map[string]any, o Options) secrets {
	var found secrets

	for _, key := range slices.Sorted(maps.Keys(parsed)) {
		stored, encrypted := o.Encrypted[key]
		switch {
		case o.Blinded:
			parsed[key] = found.blind(key, parsed[key])
		case encrypted:
			single, same := encryptedPaths(key, parseValue(stored), parsed[key])
			if !same || len(single) == 0 {
				single = []string{key}
			}

			found = append(found, single...)
		}
	}

	return found
}

// encryptedPaths returns the paths of encrypted values in stored; same reports whether the rest equals value.
func encryptedPaths(path string, stored, value any) (paths []string, same bool) {
	if isCiphertext(stored) {
		_, same = value.(string)

		return []string{path}, same
	}

	switch stored := stored.(type) {
	case map[string]any:
		object, ok := value.(map[string]any)
		if !ok || len(object) != len(stored) {
			return nil, false
		}

		for _, key := range slices.Sorted(maps.Keys(stored)) {
			inner, same := encryptedPaths(joinPath(path, key), stored[key], object[key])
			if !same {
				return nil, false
			}

			paths = append(paths, inner...)
		}

		return paths, true
	case []any:
		list, ok := value.([]any)
		if !ok || len(list) != len(stored) {
			return nil, false
		}

		for i := range stored {
			inner, same := encryptedPaths(fmt.Sprintf("%s[%d]", path, i), stored[i], list[i])
			if !same {
				return nil, false
			}

			paths = append(paths, inner...)
		}

		return paths, true
	default:
		return nil, stored == value
	}
}

// isCiphertext reports whether a value is encrypted, as in stack files: {secure: …}.
func isCiphertext(value any) bool {
	object, ok := value.(map[string]any)
	if !ok || len(object) != 1 {
		return false
	}

	_, ok = object["secure"].(string)

	return ok
}

// blind replaces encrypted values below a path with Blinded, and records their paths.
func (s *secrets) blind(path string, value any) any {
	if value == Blinded || isCiphertext(value) {
		*s = append(*s, path)

		return Blinded
	}

	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			value[key] = s.blind(joinPath(path, key), inner)
		}
	case []any:
		for i, inner := range value {
			value[i] = s.blind(fmt.Sprintf("%s[%d]", path, i), inner)
		}
	}

	return value
}

// checkWholeKeys reports keys that are encrypted as a whole.
func (p *planner) checkWholeKeys() {
	for _, key := range p.secrets {
		switch {
		case p.secrets.isSingleValue(key):
		case p.options.Blinded:
			p.problems.Add(key, nil, "is stored encrypted as a whole and cannot be read here; "+
				"encrypt single texts in it instead: %s", encryptCommand(key))
		case isCiphertext(parseValue(p.options.Encrypted[key])):
			p.warn("%s: is stored encrypted as a whole, and names, addresses and sizes in it are shown all the same; "+
				"its %s are not. Encrypt single texts instead: %s", key, secretTexts(), encryptCommand(key))
		}
	}
}

func encryptCommand(key string) string {
	path := key + "[0].patches[0]"

	switch key {
	case "backup":
		path = key + ".s3.secretKey"
	case "templates":
		path = key + ".talos.kernelArgs[0]"
	case "machines":
		path = key + "[0].password"
	case "notifications":
		path = key + ".webhook"
	}

	return "pulumi config set --secret --path 'talos-proxmox:" + path + "'"
}

// secretKeys are the keys, at any depth, whose texts remain secret if they are stored encrypted.
var secretKeys = []string{
	"accessKey", "age", "authKey", "identity", "kernelArgs", "labels", "ntp", "passphrase", "password", "patches", "secretKey", "taints", "values",
	"webhook",
}

// CanBeSecret reports whether texts under a key, at any depth, remain secret if they are stored encrypted.
func CanBeSecret(key string) bool { return slices.Contains(secretKeys, key) }

// secretSuffixes are suffixes of names of secrets, as [NamesSecret] compares them.
var secretSuffixes = []string{
	"password", "passwd", "passphrase", "secret", "apitoken", "authticket", "csrfpreventiontoken", "privatekey",
	"clientkey", "authkey", "secretkey", "accesskey",
	"kubeconfig", "kubeconfigraw", "talosconfig", "machineconfiguration", "machineconfigurationinput",
}

// NamesSecret reports whether a name, in camelCase or with underscores, is that of a secret.
func NamesSecret(name string) bool {
	name = strings.ToLower(strings.ReplaceAll(name, "_", ""))

	return name == "otp" || name == "token" || slices.ContainsFunc(
		secretSuffixes, func(ending string) bool { return strings.HasSuffix(name, ending) },
	)
}

func secretTexts() string {
	return strings.Join(secretKeys[:len(secretKeys)-1], ", ") + " and " + secretKeys[len(secretKeys)-1]
}

// redacted returns a text for a problem, which does not show secrets.
func (p *planner) redacted(path, text string) string {
	if p.secrets.contains(path) {
		return Blinded
	}

	return text
}

// isUndecrypted reports whether the value at a path is encrypted and was not decrypted.
func (p *planner) isUndecrypted(path string) bool {
	return p.options.Blinded && p.secrets.contains(path)
}
