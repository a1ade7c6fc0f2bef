package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"talos-proxmox/internal/problem"
)

// Blinded stands in the place of an encrypted value that is not known, as Pulumi shows one.
const Blinded = "[secret]"

// secrets are the paths of what is stored encrypted: whole keys (clusters), or single values (clusters[0].patches[1]).
// Texts under the keys of [CanBeSecret] are kept secret. All else names resources, or is judged by people and policies,
// and stays visible.
type secrets []string

// hold says whether a path is that of a secret, or below one.
func (s secrets) hold(path string) bool {
	return slices.ContainsFunc(s, func(secret string) bool { return problem.Under(path, secret) })
}

// touch says whether something at a path, above it or below it is secret.
func (s secrets) touch(path string) bool {
	return s.hold(path) || slices.ContainsFunc(s, func(secret string) bool { return problem.Under(secret, path) })
}

// redact takes values that are stored encrypted out of the problems.
func (s secrets) redact(found problem.List) problem.List {
	for i := range found {
		if s.touch(found[i].Path) {
			found[i].Value = ""
		}
	}

	return found
}

// single says whether the value at a path is encrypted by itself.
func (s secrets) single(path string) bool {
	return strings.ContainsAny(path, ".[") && slices.Contains(s, path)
}

// findSecrets finds the secrets of the configuration. The engine tells of whole keys only: one encrypted patch makes
// all of clusters a secret. What the stack's file has in plain text is none; so where that file holds the rest of the
// key as it is, only its encrypted values are.
func findSecrets(parsed map[string]any, o Options) secrets {
	var found secrets

	for _, key := range slices.Sorted(maps.Keys(parsed)) {
		stored, encrypted := o.Encrypted[key]
		switch {
		case o.Blinded:
			parsed[key] = found.blind(key, parsed[key])
		case encrypted:
			single, same := encryptedIn(key, parse(stored), parsed[key])
			if !same || len(single) == 0 {
				single = []string{key}
			}

			found = append(found, single...)
		}
	}

	return found
}

// encryptedIn returns the paths of the encrypted values in what is stored; same says that it is the value, but for
// them.
func encryptedIn(path string, stored, value any) (paths []string, same bool) {
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
			inner, same := encryptedIn(join(path, key), stored[key], object[key])
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
			inner, same := encryptedIn(fmt.Sprintf("%s[%d]", path, i), stored[i], list[i])
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

// isCiphertext recognises an encrypted value as stack files hold it: {secure: …}.
func isCiphertext(value any) bool {
	object, ok := value.(map[string]any)
	if !ok || len(object) != 1 {
		return false
	}

	_, ok = object["secure"].(string)

	return ok
}

// blind puts Blinded in the place of everything encrypted below a path, and notes where that is.
func (s *secrets) blind(path string, value any) any {
	if value == Blinded || isCiphertext(value) {
		*s = append(*s, path)

		return Blinded
	}

	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			value[key] = s.blind(join(path, key), inner)
		}
	case []any:
		for i, inner := range value {
			value[i] = s.blind(fmt.Sprintf("%s[%d]", path, i), inner)
		}
	}

	return value
}

// judgeWholeKeys says of keys that are encrypted as a whole what that does.
func (p *planner) judgeWholeKeys() {
	for _, key := range p.secrets {
		switch {
		case p.secrets.single(key):
		case p.options.Blinded:
			p.problems.Add(key, nil, "is stored encrypted as a whole, so that nothing is known of it here; "+
				"encrypt single texts in it instead: %s", howToEncrypt(key))
		case isCiphertext(parse(p.options.Encrypted[key])):
			p.warn("%s: is stored encrypted as a whole, and names, addresses and sizes in it are shown all the same; "+
				"its %s are not. Encrypt single texts instead: %s", key, secretTexts(), howToEncrypt(key))
		}
	}
}

func howToEncrypt(key string) string {
	path := key + "[0].patches[0]"

	switch key {
	case "backup":
		path = key + ".s3.secretKey"
	case "templates":
		path = key + ".talos.kernelArgs[0]"
	case "machines":
		path = key + "[0].password"
	}

	return "pulumi config set --secret --path 'talos-proxmox:" + path + "'"
}

// secretKeys are the keys, at any depth, whose texts are kept secret where they are stored encrypted.
var secretKeys = []string{
	"accessKey", "age", "identity", "kernelArgs", "labels", "ntp", "password", "patches", "secretKey", "taints", "values",
}

// CanBeSecret says whether what stands under a key, at any depth, is kept secret where it is stored encrypted.
func CanBeSecret(key string) bool { return slices.Contains(secretKeys, key) }

// secretEndings are how the names of secrets end, as NamesSecret compares them.
var secretEndings = []string{
	"password", "passwd", "passphrase", "secret", "apitoken", "authticket", "csrfpreventiontoken", "privatekey",
	"clientkey", "authkey", "secretkey", "accesskey",
	"kubeconfig", "kubeconfigraw", "talosconfig", "machineconfiguration", "machineconfigurationinput",
}

// NamesSecret tells the name of a secret, in camelCase or with underscores.
func NamesSecret(name string) bool {
	name = strings.ToLower(strings.ReplaceAll(name, "_", ""))

	return name == "otp" || name == "token" || slices.ContainsFunc(
		secretEndings, func(ending string) bool { return strings.HasSuffix(name, ending) },
	)
}

func secretTexts() string {
	return strings.Join(secretKeys[:len(secretKeys)-1], ", ") + " and " + secretKeys[len(secretKeys)-1]
}

// shown is a text as a problem may show it.
func (p *planner) shown(path, text string) string {
	if p.secrets.hold(path) {
		return Blinded
	}

	return text
}

// unknown says that a text is encrypted and was not decrypted.
func (p *planner) unknown(path string) bool { return p.options.Blinded && p.secrets.hold(path) }
