package rules

import (
	"encoding/base64"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/spec"
)

func secretPolicies() []policy {
	return []policy{{
		Name:        "no-plaintext-secrets",
		Description: "Values that look like secrets are marked as secrets.",
		Reason: "Otherwise they are readable in the state, in previews and in logs. Reported are properties with names of secrets, private keys, Proxmox " +
			"tokens, and long random words. The value is never shown.",
		Options: []option{
			{
				Key:    "entropy",
				Doc:    "The entropy, in bits per character, from which a word of upper-case and lower-case letters and digits counts as random; Base64 has up to 6.",
				Schema: map[string]any{"type": "number", "minimum": 3, "maximum": 6, "default": 4.2},
			},
			{
				Key: "minimumLength", Doc: "The length from which a word can count as random.",
				Schema: map[string]any{"type": "number", "minimum": 12, "default": 24},
			},
			{
				Key:    "allowed",
				Doc:    "Properties that never hold secrets, as `<type>.<path>`: `command:remote:Command.stdin`. Indexes are written `[*]`.",
				Schema: map[string]any{"type": "array", "items": map[string]any{"type": "string"}, "default": []any{}},
			},
		},
		Resource: func() func(settings, options, resource) problem.List {
			return func(_ settings, o options, r resource) problem.List { return plaintextSecrets(o, r) }
		},
	}}
}

func plaintextSecrets(o options, r resource) problem.List {
	allowed := o.strings("allowed")
	words := randomWords{entropy: o.number("entropy"), length: int(o.number("minimumLength"))}

	var found problem.List

	walk(r.Properties, "", "", func(path, key, text string) {
		why := words.suspicion(key, text)
		if why == "" || slices.Contains(allowed, r.Type+"."+indexes.ReplaceAllString(path, "[*]")) {
			return
		}

		found = append(found, violation(r.URN, r.Name,
			"%s %s and is not marked secret: wrap it (pulumi.ToSecret), or set it with pulumi config set --secret",
			path, why))
	})

	return found
}

var indexes = regexp.MustCompile(`\[\d+\]`)

// walk visits all strings of a value that are not secret, in a stable order.
func walk(v value, path, key string, visit func(path, key, text string)) {
	switch {
	case v.property.Secret():
	case v.property.IsString():
		visit(path, key, v.property.AsString())
	case v.property.IsArray():
		for i, element := range v.property.AsArray().AsSlice() {
			walk(value{element}, fmt.Sprintf("%s[%d]", path, i), key, visit)
		}
	case v.property.IsMap():
		for name, element := range v.property.AsMap().AllStable {
			below := name
			if path != "" {
				below = path + "." + name
			}

			walk(value{element}, below, name, visit)
		}
	}
}

var (
	privateKey   = regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY`)
	proxmoxToken = regexp.MustCompile(
		`[\w.+-]+@[\w.-]+![\w.-]+=[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`,
	)
	words       = regexp.MustCompile(`[A-Za-z0-9+/_=-]+`)
	publicKey   = regexp.MustCompile(`^AAAA[BCE]3NzaC1|^AAAAE2Vj|^AAAAGn|^AAAAIn`)
	fingerprint = regexp.MustCompile(`SHA256:[A-Za-z0-9+/]{43}`)
	reference   = regexp.MustCompile(`^\$\{?\w+\}?$`)
)

// randomWords recognizes random words.
type randomWords struct {
	entropy float64 // bits per character
	length  int
}

// suspicion returns why a string looks like a secret; empty = it does not.
func (t randomWords) suspicion(key, text string) string {
	if strings.TrimSpace(text) == "" || strings.HasPrefix(text, "$") && reference.MatchString(text) {
		return ""
	}

	switch {
	case spec.NamesSecret(key):
		return "has the name of a secret"
	case strings.Contains(text, "PRIVATE KEY") && privateKey.MatchString(text):
		return "holds a private key"
	case strings.Contains(text, "!") && proxmoxToken.MatchString(text):
		return "holds a Proxmox API token"
	case len(text) < t.length:
		return ""
	}

	for _, word := range words.FindAllString(fingerprint.ReplaceAllString(text, ""), -1) {
		if len(word) < t.length {
			continue
		}

		if decoded, err := base64.StdEncoding.DecodeString(word); err == nil && privateKey.Match(decoded) {
			return "holds an encoded private key"
		}

		if !publicKey.MatchString(word) && t.isRandom(word) {
			return "holds a long random word"
		}
	}

	return ""
}

// isRandom reports whether a word looks generated. Paths and names are checked by their parts, unless the word can only
// be Base64.
func (t randomWords) isRandom(word string) bool {
	parts := strings.FieldsFunc(word, func(c rune) bool { return c == '/' || c == '-' || c == '_' })
	if strings.ContainsAny(word, "+=") {
		parts = []string{word}
	}

	for _, part := range parts {
		if len(part) >= t.length && isMixed(part) && entropy(part) >= t.entropy {
			return true
		}
	}

	return false
}

// minClassChanges is the minimum ratio of changes between lower case, upper case and digits to characters in a random
// word: random words have about 0.6, NamesThatPeopleWrite a third.
const minClassChanges = 0.42

func isMixed(word string) bool {
	classes := map[int]bool{}
	changes, last := 0, -1

	for _, c := range word {
		class := slices.IndexFunc(alphabets, func(alphabet string) bool { return strings.ContainsRune(alphabet, c) })
		classes[class] = true

		if class != last {
			changes, last = changes+1, class
		}
	}

	return classes[0] && classes[1] && classes[2] && float64(changes) >= minClassChanges*float64(len(word))
}

var alphabets = []string{"abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789"}

// entropy returns the Shannon entropy in bits per character.
func entropy(text string) float64 {
	counts := map[rune]float64{}
	for _, c := range text {
		counts[c]++
	}

	sum := 0.0
	for _, n := range counts {
		sum -= n / float64(len(text)) * math.Log2(n/float64(len(text)))
	}

	return sum
}
