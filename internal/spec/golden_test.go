package spec_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/goldentest"
	"talos-proxmox/internal/spec"
)

func TestGoldenPlans(t *testing.T) {
	t.Parallel()

	files, err := filepath.Glob("testdata/plans/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)

	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()

			o := options()
			o.CheckRoot = nil // as of a stack that logs in with a password
			plan, err := spec.Load(values(t, readFile(t, file)), o)
			require.NoError(t, err)
			got, err := json.MarshalIndent(plan, "", "  ")
			require.NoError(t, err)

			goldentest.Equal(t, strings.TrimSuffix(file, ".yaml")+".golden.json", string(got)+"\n")
		})
	}
}
