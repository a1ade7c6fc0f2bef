package terminal_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/terminal"
	"talos-proxmox/internal/terminal/terminaltest"
)

// TestOf: a file and a buffer are pipes.
func TestOf(t *testing.T) {
	t.Parallel()

	file, err := os.Create(t.TempDir() + "/file")
	require.NoError(t, err)

	defer file.Close() //nolint:errcheck // at the end of the test

	assert.Nil(t, terminal.Of(file).Size)
	assert.Zero(t, terminal.Of(file).Width())
	assert.Zero(t, terminal.Of(&bytes.Buffer{}).Width())
}

// TestTerminals have a width, and colours unless NO_COLOR is set.
func TestTerminals(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")

	programs := terminaltest.Open(t, 60)
	assert.Equal(t, 60, terminal.Of(programs).Width())
	assert.True(t, terminal.Of(programs).Colour)

	t.Setenv("NO_COLOR", "1")
	assert.False(t, terminal.Of(programs).Colour)
	assert.Equal(t, 60, terminal.Of(programs).Width())

	tiny := terminaltest.Open(t, 0)
	assert.Equal(t, 80, terminal.Of(tiny).Width(), "it does not tell its width")

	t.Setenv("TERM", "dumb")
	assert.Zero(t, terminal.Of(programs).Width())
}

func TestTable(t *testing.T) {
	t.Parallel()

	rows := [][]string{
		{"NAME", "STATE", "VERSION"},
		{strings.Repeat("long", 10), "running", "v1.14.4"},
		{"short", "", "v1.14.4"},
	}

	for width, want := range map[int]string{
		0: "NAME                                      STATE    VERSION\n" +
			"longlonglonglonglonglonglonglonglonglong  running  v1.14.4\nshort                                     -        v1.14.4\n",
		50: "NAME                                      VERSION\n" +
			"longlonglonglonglonglonglonglonglonglong  v1.14.4\nshort                                     v1.14.4\n",
		30: "NAME                   VERSION\nlonglonglonglonglong…  v1.14.4\nshort                  v1.14.4\n",
		18: "NAME          VER…\nlonglonglon…  v1.…\nshort         v1.…\n",
	} {
		assert.Equal(t, want, terminal.Table(rows, width, "STATE"), width)
	}

	assert.Equal(t, "STATE", rows[0][1], "the caller's rows stay")
}

func TestFit(t *testing.T) {
	t.Parallel()

	const text = "  warning  one two three four\n  ok       fine\n  a line without columns\n\nnote: äöü äöü äöü äöü äöü\n"

	assert.Equal(t, text, terminal.Fit(text, 0))
	assert.Equal(t, "  warning  one two\n           three four\n  ok       fine\n  a line without\n    columns\n\n"+
		"note: äöü äöü äöü äöü\n  äöü\n", terminal.Fit(text, 22), "below the last column")
	assert.Contains(t, terminal.Fit(text, 18), "  warning one two\n    three four\n", "unless that is too far to the right")
}
