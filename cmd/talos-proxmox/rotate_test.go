package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRotationAsks before it begins, and refuses where nobody can answer.
func TestRotationAsks(t *testing.T) {
	t.Parallel()

	nobody, err := os.Open(os.DevNull)
	require.NoError(t, err)

	defer nobody.Close()

	root := newRoot()
	root.SetIn(nobody)
	root.SetArgs([]string{"secrets", "rotate-ca", "prod"})
	require.EqualError(t, root.Execute(), "cannot ask for confirmation without a terminal: pass --yes")
}
