package stacks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/goldentest"
	"talos-proxmox/internal/problem"
)

// TestCases reads stack files in the shape of other people's clusters: each is planned, or refused with all problems.
// Their Talos and Kubernetes parts are as they were written for other tools.
func TestCases(t *testing.T) {
	t.Parallel()

	files, err := filepath.Glob("testdata/cases/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)

	golden := goldentest.NewCases(t)

	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")

		t.Run(name, func(t *testing.T) {
			t.Parallel()

			content, err := os.ReadFile(file)
			require.NoError(t, err)

			plan, err := PlanChecked(t.Context(), name, content)
			if err != nil {
				golden.Equal(t, name, Located(err, name, content))

				return
			}

			golden.Equal(t, name, problem.Count(len(plan.Members()), "machine")+" planned", plan.Warnings)
		})
	}
}
