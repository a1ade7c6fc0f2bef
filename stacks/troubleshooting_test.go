package stacks

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	firstCell  = regexp.MustCompile("(?m)^\\| `([^`]+)`")
	formatVerb = regexp.MustCompile(`%[a-z]`)
)

// TestTroubleshootingQuotesRealMessages expects every part of every message in docs/troubleshooting.md in the sources.
func TestTroubleshootingQuotesRealMessages(t *testing.T) {
	t.Parallel()

	document, err := os.ReadFile("../docs/troubleshooting.md")
	require.NoError(t, err)

	var sources strings.Builder

	for _, root := range []string{"../cmd", "../talosops", "../components", "../internal", "../stacks", "../lab", "../tools"} {
		require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if ext := filepath.Ext(path); err != nil || (ext != ".go" && ext != ".sh") || strings.HasSuffix(path, "_test.go") {
				return err
			}

			text, err := os.ReadFile(path)
			sources.Write(text)

			return err
		}))
	}
	// Messages span several lines and have format verbs for variable parts.
	code := regexp.MustCompile(`" ?\+\s+"`).ReplaceAllString(sources.String(), "")
	code = formatVerb.ReplaceAllString(strings.ReplaceAll(code, `\n`, "\n"), "…")

	messages := firstCell.FindAllStringSubmatch(string(document), -1)
	require.Greater(t, len(messages), 40)

	for _, message := range messages {
		for part := range strings.SplitSeq(message[1], "…") {
			assert.True(t, strings.Contains(code, strings.TrimSpace(part)), "%q of %q is in no source", part, message[1])
		}
	}
}
