package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPreviewable(t *testing.T) {
	t.Parallel()

	_, err := output("previewable", "--project", sampleStacks, "dev")
	require.NoError(t, err)

	_, err = output("previewable", "--project", sampleStacks, "dev", "prod", "none")
	require.ErrorContains(t, err, "Pulumi.prod.yaml has protect: true, or cannot be read")
	require.ErrorContains(t, err, "Pulumi.none.yaml has protect: true, or cannot be read")
	assert.NotContains(t, err.Error(), "Pulumi.dev.yaml")
}
