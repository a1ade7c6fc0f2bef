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

// mostTerms is how many words of its own this project may have.
const mostTerms = 15

// TestGlossary: the terms are few, and each is one that other documents use; there is no second list.
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
	assert.LessOrEqual(t, len(terms), mostTerms)
	assert.Greater(t, len(terms), mostTerms/2)

	for _, term := range terms {
		word, used := regexp.MustCompile(`(?i)\b`+term[1]+`(s|es)?\b`), 0

		for name, text := range texts {
			if name != glossary && word.MatchString(text) {
				used++
			}
		}

		assert.GreaterOrEqual(t, used, 2, "%q is used in no two documents: it is no term of this project", term[1])
	}

	for name, text := range texts {
		if name != glossary {
			assert.NotRegexp(t, `(?mi)^#+ glossary`, text, "%s: words are explained in docs/%s", name, glossary)
		}
	}

	for _, index := range []string{"README.md", "../CONTRIBUTING.md"} {
		text, err := os.ReadFile(filepath.Join(root, "docs", index))
		require.NoError(t, err)
		assert.True(t, strings.Contains(string(text), glossary), "%s leads to the glossary", index)
	}
}
