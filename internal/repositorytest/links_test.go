package repositorytest

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	fences    = regexp.MustCompile("(?ms)^[ \t]*```.*?^[ \t]*```")
	headings  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	ids       = regexp.MustCompile(`<a id="([^"]+)">`)
	links     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	dropped   = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	citations = regexp.MustCompile(`docs/[a-z-]+\.md(#[a-z0-9-]+)?`)
	tests     = regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
	functions = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
)

// anchors returns the anchors that GitHub generates for a document's headings, and explicit ones.
func anchors(text string) map[string]bool {
	found := map[string]bool{}

	text = fences.ReplaceAllString(text, "")
	for _, heading := range headings.FindAllStringSubmatch(text, -1) {
		title := links.ReplaceAllString(heading[1], "]")
		slug := strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(title), ""), " ", "-")

		for name, n := slug, 1; ; n++ {
			if !found[name] {
				found[name] = true

				break
			}

			name = fmt.Sprintf("%s-%d", slug, n)
		}
	}

	for _, id := range ids.FindAllStringSubmatch(text, -1) {
		found[id[1]] = true
	}

	return found
}

// checkTarget returns what is wrong with a link to a file of the repository; empty if it is valid.
func checkTarget(file, anchor string) string {
	text, err := os.ReadFile(filepath.Join(root, file))
	if stat, statErr := os.Stat(filepath.Join(root, file)); statErr == nil && stat.IsDir() && anchor == "" {
		return ""
	}

	switch {
	case err != nil:
		return file + " does not exist"
	case anchor != "" && !anchors(string(text))[anchor]:
		return file + " has no heading #" + anchor
	default:
		return ""
	}
}

// TestLinks checks every link of a document to a file of the repository.
func TestLinks(t *testing.T) {
	t.Parallel()

	for _, document := range files(t, ".md") {
		for _, link := range links.FindAllStringSubmatch(fences.ReplaceAllString(read(t, document), ""), -1) {
			if strings.Contains(link[1], "://") {
				continue
			}

			file, anchor, _ := strings.Cut(link[1], "#")
			if file == "" {
				file = path.Base(document)
			}

			assert.Empty(t, checkTarget(path.Join(path.Dir(document), file), anchor), "the link %s of %s", link[1], document)
		}
	}
}

// TestReferencedDocuments checks every document and heading that code, scripts and settings refer to.
func TestReferencedDocuments(t *testing.T) {
	t.Parallel()

	for _, source := range files(t, ".go", ".sh", ".yaml", "Makefile") {
		for _, citation := range citations.FindAllString(read(t, source), -1) {
			file, anchor, _ := strings.Cut(citation, "#")
			assert.Empty(t, checkTarget(file, anchor), "%s names %s", source, citation)
		}
	}
}

// TestPitfallsNameTheirTests checks every test that docs/dev/provider-pitfalls.md names.
func TestPitfallsNameTheirTests(t *testing.T) {
	t.Parallel()

	known := map[string]bool{}

	for _, source := range files(t, "_test.go") {
		for _, function := range functions.FindAllStringSubmatch(read(t, source), -1) {
			known[function[1]] = true
		}
	}

	named := tests.FindAllStringSubmatch(read(t, "docs/dev/provider-pitfalls.md"), -1)
	require.NotEmpty(t, named)

	for _, name := range named {
		assert.True(t, known[name[1]], "docs/dev/provider-pitfalls.md names %s, which does not exist", name[1])
	}
}

// TestIndex checks that the index lists every document in docs/.
func TestIndex(t *testing.T) {
	t.Parallel()

	index := read(t, "docs/README.md")

	for _, document := range files(t, ".md") {
		if name, in := strings.CutPrefix(document, "docs/"); in && name != "README.md" {
			assert.Contains(t, index, "]("+name+")", "docs/README.md does not list it")
		}
	}
}

func TestAnchorsAreThoseOfGitHub(t *testing.T) {
	t.Parallel()

	found := anchors("# Provider's `pitfalls` (1.2)\n## Twice\n## Twice\n```sh\n# no heading\n```\n## [A link](x.md) – and\n<a id=\"own\"></a>\n")
	for _, name := range []string{"providers-pitfalls-12", "twice", "twice-1", "a-link--and", "own"} {
		assert.True(t, found[name], name)
	}

	assert.Len(t, found, 5)
	assert.Equal(t, "docs/"+"none.md does not exist", checkTarget("docs/"+"none.md", ""))
	assert.Equal(t, "go.mod has no heading #a", checkTarget("go.mod", "a"))
	assert.Empty(t, checkTarget("docs", ""))
}
