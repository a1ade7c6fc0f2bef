package repositorytest

import (
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// maxTerms limits the glossary.
const maxTerms = 15

// TestGlossary: the glossary is short, other documents use each term, and there is no second glossary.
func TestGlossary(t *testing.T) {
	t.Parallel()

	const glossary = "docs/glossary.md"

	texts := map[string]string{}

	for _, name := range files(t, ".md") {
		if name == "README.md" || strings.HasPrefix(name, "docs/") {
			texts[name] = read(t, name)
		}
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
			assert.NotRegexp(t, `(?mi)^#+ glossary`, text, "%s: terms belong into %s", name, glossary)
		}
	}

	for _, index := range []string{"docs/README.md", "CONTRIBUTING.md"} {
		assert.Contains(t, read(t, index), path.Base(glossary), "it links to the glossary")
	}
}
