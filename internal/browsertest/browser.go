// Package browsertest opens pages in a real browser for tests.
package browsertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Widths are those of a telephone, a small window and a desk, in CSS pixels.
var Widths = []int{360, 900, 1600}

// Inspect opens a page at all widths, in light and in dark, and returns what inspect found, by "360 light". It is the
// body of a JavaScript function that returns a list of texts, with the page's window as `page` and its document as
// `dom`. Without a browser the test is skipped.
func Inspect(t *testing.T, content []byte, inspect string) map[string][]string {
	t.Helper()

	var frames strings.Builder
	for _, width := range Widths {
		// A window cannot be narrower than 500 pixels, a frame can.
		fmt.Fprintf(&frames, "<iframe id=w%d width=%[1]d height=900 style='border: 0' srcdoc=\"%s\"></iframe>\n", width,
			html.EscapeString(string(content)))
	}

	file := filepath.Join(t.TempDir(), "page.html")
	require.NoError(t, os.WriteFile(file, []byte(`<!doctype html><body>`+frames.String()+`<script>
const inspect = (page, dom) => {`+inspect+`};
addEventListener('load', () => {
  const found = {};
  for (const frame of document.querySelectorAll('iframe')) {
    const page = frame.contentWindow;
    const dark = page.matchMedia('(prefers-color-scheme: dark)').matches;
    found[page.innerWidth + (dark ? ' dark' : ' light')] = inspect(page, page.document);
  }
  document.body.textContent = 'FOUND' + JSON.stringify(found) + 'DNUOF';
});
</script>`), 0o600))

	all := map[string][]string{}

	for _, scheme := range []string{"0", "1"} { // dark, light
		shown := Open(t, "file://"+file, "--blink-settings=preferredColorScheme="+scheme)
		_, shown, found := strings.Cut(shown, "FOUND")
		require.True(t, found)

		shown, _, _ = strings.Cut(shown, "DNUOF")
		require.NoError(t, json.Unmarshal([]byte(html.UnescapeString(shown)), &all))
	}

	require.Len(t, all, 2*len(Widths))

	return all
}

// Open opens a page and returns its document as it is once its scripts have run for a while. Without a browser the test
// is skipped.
func Open(t *testing.T, url string, flags ...string) string {
	t.Helper()

	browser, err := exec.LookPath("chromium")
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("chromium is not installed (apt-get install chromium): the page is not opened in a browser")
	}

	require.NoError(t, err)

	flags = append(flags, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--user-data-dir="+t.TempDir(),
		"--dump-dom", url)

	out, err := exec.CommandContext(t.Context(), browser, flags...).Output() //nolint:gosec // the browser
	require.NoError(t, err)

	return string(out)
}
