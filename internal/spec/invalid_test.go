package spec_test

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"talos-proxmox/internal/spec"
)

// invalidCase is a change of testdata/base.yaml with every line of the resulting error.
type invalidCase struct {
	// Set are new values by path; null removes one, and the next index of a list appends.
	Set  map[string]any `yaml:"set"`
	Want []string       `yaml:"want"`
}

// enoughCases is the minimum number of invalid configurations, in case files are missing.
const enoughCases = 100

func TestInvalidConfigurations(t *testing.T) {
	t.Parallel()

	files, err := filepath.Glob("testdata/invalid/*.yaml")
	require.NoError(t, err)

	count := 0

	for _, file := range files {
		cases := map[string]invalidCase{}
		require.NoError(t, yaml.Unmarshal([]byte(readFile(t, file)), &cases))

		count += len(cases)
		for name, c := range cases {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml")+"/"+name, func(t *testing.T) {
				t.Parallel()
				plan, err := spec.Load(changed(t, c.Set), options())
				assert.Nil(t, plan)
				require.Error(t, err)
				assert.Equal(t, c.Want, strings.Split(err.Error(), "\n"))

				for _, line := range c.Want {
					assert.Regexp(t, remedy, line, "the message must end with a remedy")
				}
			})
		}
	}

	assert.GreaterOrEqual(t, count, enoughCases)
}

// remedy matches the remedy at the end of messages.
var remedy = regexp.MustCompile(
	`(; |: )(set|write|choose|use|remove|leave|did you mean|add|put|give|place|shorten|correct|it has)\b`,
)

// changed returns the base configuration with changes.
func changed(t testing.TB, set map[string]any) map[string]string {
	t.Helper()

	var top any
	require.NoError(t, yaml.Unmarshal([]byte(readFile(t, "testdata", "base.yaml")), &top))

	for path, value := range set {
		top = put(t, top, steps(path), value)
	}

	return valuesOf(t, top.(map[string]any))
}

// steps splits clusters[0].network["a.b"] into its keys and indexes.
func steps(path string) []string {
	return regexp.MustCompile(`[^.\[\]]+`).FindAllString(path, -1)
}

func put(t testing.TB, in any, at []string, value any) any {
	t.Helper()

	if len(at) == 0 {
		return value
	}

	switch node := in.(type) {
	case []any:
		index, err := strconv.Atoi(at[0])
		require.NoError(t, err)

		if index == len(node) {
			node = append(node, nil)
		}

		node[index] = put(t, node[index], at[1:], value)

		return node
	case map[string]any:
		node[at[0]] = put(t, node[at[0]], at[1:], value)

		return node
	case nil:
		return put(t, map[string]any{}, at, value)
	default:
		t.Fatalf("%s leads into a %T", at[0], in)

		return nil
	}
}
