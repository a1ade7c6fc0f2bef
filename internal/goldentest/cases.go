package goldentest

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
)

// Cases is the golden file of a table test, in txtar format: a section with the result of each case.
type Cases struct {
	path     string
	sections map[string]string // of the file

	mu      sync.Mutex
	results map[string]string
}

// NewCases reads the golden file of a test, testdata/<test>.txt. After all cases, each section must belong to a case.
// With -update the file is written then.
func NewCases(t *testing.T) *Cases {
	t.Helper()

	c := &Cases{
		path: filepath.Join("testdata", t.Name()+".txt"), sections: map[string]string{}, results: map[string]string{},
	}

	text, err := os.ReadFile(c.path)
	require.True(t, err == nil || *update, "go test -update in the package's folder writes %s", c.path)

	for _, section := range txtar.Parse(text).Files {
		c.sections[section.Name] = string(section.Data)
	}

	t.Cleanup(func() { c.finish(t) })

	return c
}

// Equal fails a case whose result differs from its section: texts, lists with a line for each item, errors, and other
// values as JSON. Empty values have no line.
func (c *Cases) Equal(t *testing.T, name string, values ...any) {
	t.Helper()

	result := ""

	for _, value := range values {
		text := ""

		switch value := value.(type) {
		case nil:
		case error:
			text = "error: " + value.Error()
		case string:
			text = value
		case []string:
			text = strings.Join(value, "\n")
		default:
			encoded, err := json.Marshal(value)
			require.NoError(t, err)

			text = string(encoded)
		}

		if text = strings.TrimRight(text, "\n"); text != "" {
			result += text + "\n"
		}
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	c.results[name] = result

	section, has := c.sections[name]
	if !*update {
		require.True(t, has, "%s has no section for this case; go test -update in the package's folder writes it", c.path)
		require.Equal(t, section, result, "%s is stale; go test -update in the package's folder rewrites it", c.path)
	}
}

// finish checks that no section is without a case. With -update it writes the file.
func (c *Cases) finish(t *testing.T) {
	t.Helper()

	if isPartial := strings.Contains(flag.Lookup("test.run").Value.String(), "/"); isPartial {
		merged := maps.Clone(c.sections)
		maps.Copy(merged, c.results)
		c.results = merged
	}

	if !*update {
		assert.True(t, t.Failed() || len(c.results) == len(c.sections), "%s has sections without a case", c.path)

		return
	}

	var file txtar.Archive
	for _, name := range slices.Sorted(maps.Keys(c.results)) {
		file.Files = append(file.Files, txtar.File{Name: name, Data: []byte(c.results[name])})
	}

	Equal(t, c.path, string(txtar.Format(&file)))
}
