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

// Cases is the golden file of a table test, in txtar's format: a section for each case, with what came of it.
type Cases struct {
	path     string
	sections map[string]string // of the file

	mu   sync.Mutex
	came map[string]string
}

// OfCases reads the golden file of a test, testdata/<test>.txt. Once all cases are over, no section may be left that is
// none's. With -update the file is written then.
func OfCases(t *testing.T) *Cases {
	t.Helper()

	c := &Cases{path: filepath.Join("testdata", t.Name()+".txt"), sections: map[string]string{}, came: map[string]string{}}

	text, err := os.ReadFile(c.path)
	require.True(t, err == nil || *update, "go test -update in the package's folder writes %s", c.path)

	for _, section := range txtar.Parse(text).Files {
		c.sections[section.Name] = string(section.Data)
	}

	t.Cleanup(func() { c.finish(t) })

	return c
}

// Equal fails a case of which something else came than its section has: texts as they are, lists with a line for each
// item, errors, and any other value in JSON. What is empty has no line.
func (c *Cases) Equal(t *testing.T, name string, values ...any) {
	t.Helper()

	came := ""

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
			came += text + "\n"
		}
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	c.came[name] = came

	section, has := c.sections[name]
	if !*update {
		require.True(t, has, "%s has no section for this case; go test -update in the package's folder writes it", c.path)
		require.Equal(t, section, came, "%s is stale; go test -update in the package's folder rewrites it", c.path)
	}
}

// finish writes the file, or looks for sections of cases that are gone.
func (c *Cases) finish(t *testing.T) {
	t.Helper()

	if some := strings.Contains(flag.Lookup("test.run").Value.String(), "/"); some {
		merged := maps.Clone(c.sections)
		maps.Copy(merged, c.came)
		c.came = merged
	}

	if !*update {
		assert.True(t, t.Failed() || len(c.came) == len(c.sections), "%s has sections of cases that are gone", c.path)

		return
	}

	var file txtar.Archive
	for _, name := range slices.Sorted(maps.Keys(c.came)) {
		file.Files = append(file.Files, txtar.File{Name: name, Data: []byte(c.came[name])})
	}

	Equal(t, c.path, string(txtar.Format(&file)))
}
