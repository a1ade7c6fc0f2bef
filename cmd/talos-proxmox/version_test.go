package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/terminal/terminaltest"
)

func TestVersion(t *testing.T) {
	t.Parallel()

	text, err := output("version")
	require.NoError(t, err)

	for _, r := range talos.Releases() {
		if r.Support == talos.Supported {
			assert.Contains(t, text, r.Newest)
		}
	}

	for line := range strings.SplitSeq(text, "\n") {
		assert.LessOrEqual(t, len(line), 80, line)
	}

	assert.Regexp(t, `(?m)^proxmoxve +v6\.[0-9.]+$`, text)

	flag, err := output("--version")
	require.NoError(t, err)
	assert.Equal(t, text, flag)
}

// TestTheTerminalIsNotAsked for its background colour when the program starts, which takes 5 s if it does not answer.
func TestTheTerminalIsNotAsked(t *testing.T) {
	t.Parallel()

	terminaltest.RequireQuietStart(t)
}
