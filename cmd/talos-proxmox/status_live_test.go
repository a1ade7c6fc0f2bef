package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestStatusFlags: what cannot be shown is refused before anything is asked.
func TestStatusFlags(t *testing.T) {
	t.Parallel()

	folder := fakeProject(t, "")

	for says, flags := range map[string][]string{
		"were all set":                      {"--watch", "--serve"},
		"[output watch] were all set":       {"--watch", "--output", "json"},
		"--interval: 10ms is less than 1s":  {"--watch", "--interval", "10ms"},
		`"0.0.0.0:8080" is not on loopback`: {"--serve", "--listen", "0.0.0.0:8080"},
		"--interval does nothing without":   {"--interval", "10s"},
		"--listen does nothing without":     {"--listen", "127.0.0.1:8080", "--watch"},
	} {
		_, err := output(append([]string{"status", "prod", "--project", folder}, flags...)...)
		require.ErrorContains(t, err, says)
	}

	assert.NoFileExists(t, folder+"/calls")
}
