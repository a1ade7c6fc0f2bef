package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/talos"
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

	assert.Regexp(t, `(?m)^proxmoxve +v6\.[0-9.]+$`, text)

	flag, err := output("--version")
	require.NoError(t, err)
	assert.Equal(t, text, flag)
}
