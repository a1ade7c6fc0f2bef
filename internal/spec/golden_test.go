package spec_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/spec"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestPlansAreAsRecorded(t *testing.T) {
	t.Parallel()

	files, err := filepath.Glob("testdata/plans/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)

	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()

			o := options()
			o.CheckRaw = nil // a stack that logs in with a password
			plan, err := spec.Load(values(t, readFile(t, file)), o)
			require.NoError(t, err)
			got, err := json.MarshalIndent(plan, "", "  ")
			require.NoError(t, err)

			golden := strings.TrimSuffix(file, ".yaml") + ".golden.json"
			if *update {
				require.NoError(t, os.WriteFile(golden, append(got, '\n'), 0o600))
			}

			assert.Equal(t, readFile(t, golden), string(got)+"\n", "go test ./internal/spec -update rewrites the recorded plans")
		})
	}
}
