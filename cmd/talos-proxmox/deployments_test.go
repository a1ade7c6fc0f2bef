package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPullRequestsAreNotPreviewedWithSecretsOfAProtectedStack: whoever opens a pull request decides what its preview
// runs.
func TestPullRequestsAreNotPreviewedWithSecretsOfAProtectedStack(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		arguments []string
		runs      string // part of the CLI's arguments
		refused   string
	}{
		"no one asked for it": {[]string{"prod"}, "--preview-prs=false --push-to-deploy=false", ""},
		"pushes":              {[]string{"prod", "--push"}, "--push-to-deploy=true", ""},
		"protected":           {[]string{"prod", "--preview-prs"}, "", "Pulumi.prod.yaml has protect: true"},
		"not protected":       {[]string{"dev", "--preview-prs"}, "--preview-prs=true", ""},
		"no stack file": {
			[]string{"none", "--preview-prs"}, "", "Pulumi.none.yaml has protect: true, or cannot be read",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			cli := script(t, t.TempDir(), "pulumi", `echo "$@"`)
			arguments := []string{
				"deployments", "--project", sampleStacks, "--pulumi", cli, "--repository", "me/fleet", "--pool", "home",
			}
			out, err := output(append(arguments, test.arguments...)...)

			if test.refused != "" {
				require.ErrorContains(t, err, test.refused)
				assert.Empty(t, out)

				return
			}

			require.NoError(t, err, out)
			assert.Contains(t, out, test.runs)
			assert.Contains(t, out, "--pre-run-command .bin/talos-proxmox preview "+test.arguments[0]+` --refresh --approve "$APPROVE"`,
				"docs/pipelines.md: the variable holds approvals")
		})
	}
}
