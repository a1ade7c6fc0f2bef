package repositorytest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// maxTerms limits the glossary.
const maxTerms = 15

// TestGlossary: the glossary is short, other documents use each term, and there is no second glossary.
func TestGlossary(t *testing.T) {
	t.Parallel()

	const glossary = "glossary.md"

	paths, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)

	texts := map[string]string{}

	for _, path := range append(paths, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)

		texts[filepath.Base(path)] = string(text)
	}

	terms := regexp.MustCompile(`(?m)^\| ([a-z -]+) \| [A-Z]`).FindAllStringSubmatch(texts[glossary], -1)
	assert.LessOrEqual(t, len(terms), maxTerms)
	assert.Greater(t, len(terms), maxTerms/2)

	for _, term := range terms {
		word, used := regexp.MustCompile(`(?i)\b`+term[1]+`(s|es)?\b`), 0

		for name, text := range texts {
			if name != glossary && word.MatchString(text) {
				used++
			}
		}

		assert.GreaterOrEqual(t, used, 2, "%q is not used in two other documents: remove it", term[1])
	}

	for name, text := range texts {
		if name != glossary {
			assert.NotRegexp(t, `(?mi)^#+ glossary`, text, "%s: terms belong into docs/%s", name, glossary)
		}
	}

	for _, index := range []string{"README.md", "../CONTRIBUTING.md"} {
		text, err := os.ReadFile(filepath.Join(root, "docs", index))
		require.NoError(t, err)
		assert.True(t, strings.Contains(string(text), glossary), "%s links to the glossary", index)
	}
}
