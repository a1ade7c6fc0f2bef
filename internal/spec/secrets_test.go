package spec_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"talos-proxmox/internal/spec"
)

// wholeKeys returns every key as encrypted, without the stack's file.
func wholeKeys(values map[string]string) map[string]string {
	keys := map[string]string{}
	for key := range values {
		keys[key] = ""
	}

	return keys
}

// eachText visits every text that the configuration can have; set returns a configuration with another text there.
func eachText(t *testing.T, visit func(path, key string, set func(text string) map[string]string)) {
	t.Helper()

	var walk func(kind reflect.Type, path, key string, place func(top map[string]any, value any))

	walk = func(kind reflect.Type, path, key string, place func(top map[string]any, value any)) {
		switch kind.Kind() { //nolint:exhaustive // these are the kinds of the configuration types
		case reflect.Pointer:
			walk(kind.Elem(), path, key, place)
		case reflect.String:
			visit(path, key, func(text string) map[string]string {
				top := map[string]any{}
				require.NoError(t, yaml.Unmarshal([]byte(readFile(t, "testdata", "base.yaml")), &top))
				place(top, text)

				return valuesOf(t, top)
			})
		case reflect.Slice:
			walk(kind.Elem(), path+"[0]", key, func(top map[string]any, value any) {
				place(top, changedBy(at(top, path), func(list []any) []any {
					if len(list) == 0 {
						return []any{value}
					}

					return append([]any{value}, list[1:]...)
				}))
			})
		case reflect.Map:
			name := map[string]string{"templates": "talos", "nodes": "1"}[key]
			if name == "" {
				name = "example.org/a"
			}

			walk(kind.Elem(), path+"."+name, key, func(top map[string]any, value any) {
				place(top, changedBy(at(top, path), func(object map[string]any) map[string]any {
					return with(object, name, value)
				}))
			})
		case reflect.Struct:
			for i := range kind.NumField() {
				field := kind.Field(i)

				name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
				if field.Anonymous {
					walk(field.Type, path, key, place)

					continue
				}

				walk(field.Type, strings.TrimPrefix(path+"."+name, "."), name, func(top map[string]any, value any) {
					if path == "" {
						top[name] = value

						return
					}

					place(
						top, changedBy(at(top, path), func(object map[string]any) map[string]any { return with(object, name, value) }),
					)
				})
			}
		}
	}
	walk(reflect.TypeFor[spec.Config](), "", "", nil)
}

func changedBy[T any](old any, change func(T) T) T {
	known, _ := old.(T)

	return change(known)
}

func with(object map[string]any, name string, value any) map[string]any {
	object = maps.Clone(object)
	if object == nil {
		object = map[string]any{}
	}

	object[name] = value

	return object
}

// at returns the value at a path, or nil.
func at(value any, path string) any {
	for part := range strings.SplitSeq(strings.ReplaceAll(path, "[0]", ".[0]"), ".") {
		switch known := value.(type) {
		case map[string]any:
			value = known[part]
		case []any:
			if len(known) == 0 {
				return nil
			}

			value = known[0]
		default:
			return nil
		}
	}

	return value
}

// TestProblemsShowNoEncryptedValues sets an invalid text, and a valid one for texts that remain secret, at every key
// that accepts text.
func TestProblemsShowNoEncryptedValues(t *testing.T) {
	t.Parallel()

	o := options()
	visited, failed := 0, 0

	eachText(t, func(path, key string, set func(string) map[string]string) {
		texts := []string{"Marker &x"}
		if spec.CanBeSecret(key) {
			texts = append(texts, "marker", "marker=marker:NoSchedule", "marker: [")
		}

		for _, text := range texts {
			values := set(text)
			visited++

			for name, encrypted := range map[string]map[string]string{
				"whole": wholeKeys(values), "single": {strings.FieldsFunc(path, isSeparator)[0]: encryptedAt(t, values, text)},
			} {
				o.Encrypted = encrypted

				plan, err := spec.Load(values, o)
				if err != nil {
					failed++

					assert.NotContains(t, strings.ToLower(err.Error()), "marker", "%s: %s (%s)", path, text, name)

					continue
				}

				assert.NotContains(t, strings.ToLower(strings.Join(plan.Warnings, "\n")), "marker", path)
			}
		}
	})
	assert.Greater(t, visited, 70)
	assert.Greater(t, failed, 100, "most of them are wrong")
}

func isSeparator(c rune) bool { return c == '.' || c == '[' }

// encryptedAt returns the key that contains a text as in a stack file, with that text encrypted.
func encryptedAt(t *testing.T, values map[string]string, text string) string {
	t.Helper()

	quoted, err := json.Marshal(text)
	require.NoError(t, err)

	for _, value := range values {
		if strings.Contains(value, string(quoted)) {
			return strings.ReplaceAll(value, string(quoted), `{"secure":"v1:cipher"}`)
		}
	}

	t.Fatalf("%q is nowhere", text)

	return ""
}

func TestKeysOfEncryptedLabelsAreNotShown(t *testing.T) {
	t.Parallel()
	values := changed(t, map[string]any{
		"clusters[0].workers[0].labels": map[string]any{"marker key": "a b"},
		"clusters[0].workers[0].taints": []any{"marker=a:NoSchedule", "marker=b:NoSchedule"},
	})
	o := options()
	_, err := spec.Load(values, o)
	require.ErrorContains(t, err, `labels["marker key"]`)
	require.ErrorContains(t, err, "second taint with the key marker")

	o.Encrypted = wholeKeys(values)
	_, err = spec.Load(values, o)
	require.ErrorContains(t, err, `clusters[0].workers[0].labels["[secret]"]: is not a key of Kubernetes labels`)
	assert.NotContains(t, err.Error(), "marker")
}

func TestSecretFlags(t *testing.T) {
	t.Parallel()
	values := changed(t, map[string]any{
		"clusters[0].patches":                []any{sysctl("a"), sysctl("b")},
		"clusters[0].workers[0].labels":      map[string]any{"a": "b"},
		"clusters[0].controlPlane.taints":    []any{"a=b:NoSchedule"},
		"clusters[0].network.ntp":            []any{"time.example.org"},
		"templates.talos.kernelArgs":         []any{"a=b"},
		"clusters[0].workers[0].count":       2,
		"clusters[0].workers[0].nodes":       map[string]any{"2": map[string]any{"patches": []any{sysctl("c")}}},
		"clusters[0].controlPlane.memoryMiB": 4096,
	})

	encrypt := func(key string, paths ...string) map[string]string {
		text := values[key]
		for _, plain := range paths {
			require.Contains(t, text, plain)
			text = strings.Replace(text, plain, `{"secure":"v1:cipher"}`, 1)
		}

		return map[string]string{key: text}
	}
	for name, test := range map[string]struct {
		encrypted map[string]string
		secret    []string
	}{
		"nothing": {},
		"one patch of the cluster": {
			encrypt("clusters", `"`+sysctl("b")+`"`), []string{"cluster", "prod-cp-1", "prod-general-1", "prod-general-2"},
		},
		"a patch of one machine": {encrypt("clusters", `"`+sysctl("c")+`"`), []string{"prod-general-2"}},
		"a label":                {encrypt("clusters", `"b"`), []string{"prod-general-1", "prod-general-2"}},
		"a taint":                {encrypt("clusters", `"a=b:NoSchedule"`), []string{"prod-cp-1"}},
		"a time server":          {encrypt("clusters", `"time.example.org"`), []string{"cluster"}},
		"a kernel argument":      {encrypt("templates", `"a=b"`), []string{"template"}},
		"a key as a whole": {
			map[string]string{"clusters": `{"secure":"v1:cipher"}`},
			[]string{"cluster", "prod-cp-1", "prod-general-1", "prod-general-2"},
		},
		"a key without the file": {
			map[string]string{"clusters": ""}, []string{"cluster", "prod-cp-1", "prod-general-1", "prod-general-2"},
		},
		"a file that is another one": {
			map[string]string{"clusters": strings.Replace(encrypt("clusters", `"`+sysctl("c")+`"`)["clusters"], sysctl("a"), sysctl("z"), 1)},
			[]string{"cluster", "prod-cp-1", "prod-general-1", "prod-general-2"},
		},
		"a file without encrypted ones": {
			map[string]string{"clusters": values["clusters"]},
			[]string{"cluster", "prod-cp-1", "prod-general-1", "prod-general-2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			o := options()
			o.Encrypted = test.encrypted
			plan, err := spec.Load(values, o)
			require.NoError(t, err)

			found := map[string]bool{"template": plan.Templates[0].Secret, "cluster": plan.Clusters[0].Secret}
			for _, n := range plan.Clusters[0].Nodes() {
				found[n.Name] = n.Secret
			}

			maps.DeleteFunc(found, func(_ string, secret bool) bool { return !secret })
			secret := slices.DeleteFunc(
				slices.Sorted(maps.Keys(found)), func(n string) bool { return n == "prod-cp-2" || n == "prod-cp-3" },
			)
			assert.ElementsMatch(t, test.secret, secret)

			warned := strings.Contains(
				strings.Join(plan.Warnings, "\n"),
				"clusters: is stored encrypted as a whole, and names, addresses and sizes in it are shown all the same",
			)
			assert.Equal(t, name == "a key as a whole", warned)
		})
	}
}

func TestValuesThatCannotRemainSecret(t *testing.T) {
	t.Parallel()
	values := changed(t, nil)
	o := options()
	o.Encrypted = map[string]string{"hosts": strings.Replace(values["hosts"], `"10.0.0.2"`, `{"secure":"v1:cipher"}`, 1)}
	_, err := spec.Load(values, o)
	require.EqualError(t, err, "hosts[0].address: is stored encrypted but would be shown in plain text: only accessKey, age, authKey, identity, kernelArgs, labels, ntp, passphrase, password, patches, secretKey, taints, values and webhook are kept secret; "+
		"store it in plain text, without --secret")
}

func TestBlinded(t *testing.T) {
	t.Parallel()

	set := map[string]any{
		"clusters[0].patches":             []any{sysctl("a"), map[string]any{"secure": "v1:cipher"}},
		"clusters[0].workers[0].labels":   map[string]any{"a": spec.Blinded},
		"clusters[0].controlPlane.taints": []any{spec.Blinded},
		"templates.talos.kernelArgs":      []any{spec.Blinded},
		"clusters[0].network.ntp":         []any{spec.Blinded},
	}
	o := options()
	o.Blinded = true
	plan, err := spec.Load(changed(t, set), o)
	require.NoError(t, err, "undecrypted values are not checked")
	assert.Len(t, plan.Clusters[0].Nodes(), 5)
	assert.Equal(t, []string{sysctl("a") + "\n", "[secret]\n"}, plan.Clusters[0].Patches)

	set["clusters"] = spec.Blinded
	_, err = spec.Load(map[string]string{"clusters": spec.Blinded}, o)
	require.ErrorContains(
		t, err,
		"clusters: is stored encrypted as a whole and cannot be read here; encrypt single texts in it instead: "+
			"pulumi config set --secret --path 'talos-proxmox:clusters[0].patches[0]'",
	)
}
