package repositorytest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPullRequestsAreNotPreviewedWithSecretsOfAProtectedStack: whoever opens one decides what its preview runs.
func TestPullRequestsAreNotPreviewedWithSecretsOfAProtectedStack(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		arguments []string
		runs      string // part of the CLI's arguments
		refused   string
	}{
		"no one asked for it": {[]string{"STACK=prod"}, "--preview-prs=false", ""},
		"protected":           {[]string{"STACK=prod", "PREVIEW_PRS=true"}, "", "Pulumi.prod.yaml has protect: true"},
		"not protected":       {[]string{"STACK=dev", "PREVIEW_PRS=true"}, "--preview-prs=true", ""},
		"no stack file":       {[]string{"STACK=none", "PREVIEW_PRS=true"}, "", "Pulumi.none.yaml has protect: true, or cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			bin := t.TempDir()
			cli := "#!/bin/sh\necho \"$@\"\n"
			require.NoError(t, os.WriteFile(filepath.Join(bin, "pulumi"), []byte(cli), 0o700)) //nolint:gosec // a program

			arguments := append([]string{"deployments", "BIN=" + bin, "REPO=me/fleet", "POOL=home"}, test.arguments...)
			cmd := exec.CommandContext(t.Context(), "make", arguments...)
			cmd.Dir = "../.."
			out, err := cmd.CombinedOutput()

			if test.refused != "" {
				require.Error(t, err)
				assert.Contains(t, string(out), test.refused)
				assert.NotContains(t, string(out), "--preview-prs")

				return
			}

			require.NoError(t, err, "%s", out)
			assert.Contains(t, string(out), test.runs)
		})
	}
}
