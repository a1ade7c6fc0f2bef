package workflowstest

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestOnlyTheDefaultBranchIsReleased: everything that a release builds and signs waits for a job that refuses tags
// beside the default branch. Its script runs here in a repository with such a tag.
func TestOnlyTheDefaultBranchIsReleased(t *testing.T) {
	t.Parallel()

	w, _ := load(t, "release.yaml")
	branch := w.Jobs["branch"]
	require.Len(t, branch.Steps, 2)
	assert.Equal(t, "0", branch.Steps[0].with("fetch-depth"), "the default branch's commits are there")
	assert.Contains(t, branch.Steps[1].Env["BRANCH"], "github.event.repository.default_branch")
	assert.Empty(t, branch.Needs)

	for name, job := range w.Jobs {
		if name != "branch" {
			assert.NotEmpty(t, job.Needs, "%s does not wait", name)
		}
	}

	assert.Contains(t, w.Jobs["build"].Needs, "branch")
	assert.Contains(t, w.Jobs["publish"].Needs, "build")
	assert.Equal(t, "release", w.Jobs["publish"].Environment)

	folder, clone := t.TempDir(), t.TempDir()
	run := func(in, script string) error {
		cmd := exec.CommandContext(t.Context(), "bash", "-ec", script) //nolint:gosec // the workflow's
		cmd.Dir = in

		cmd.Env = append(os.Environ(), "BRANCH=main", "HOME="+folder, "GIT_CONFIG_NOSYSTEM=1",
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org")

		return cmd.Run()
	}

	require.NoError(t, run(folder, `git init -q -b main
git commit -q --allow-empty -m one && git tag v1.0.0
git checkout -q -b other && git commit -q --allow-empty -m other && git tag v1.0.1
git checkout -q main && git commit -q --allow-empty -m two && git tag v1.1.0`))
	require.NoError(t, run(clone, "git clone -q '"+folder+"' ."))

	for tag, released := range map[string]bool{"v1.0.0": true, "v1.1.0": true, "v1.0.1": false} {
		require.NoError(t, run(clone, "git checkout -q "+tag))
		assert.Equal(t, released, run(clone, branch.Steps[1].Run) == nil, tag)
	}
}

// TestNoProtectedStackIsPreviewed: the job with the stacks' secrets waits for one that runs the base branch's code and
// refuses protected stacks, and has no secrets itself.
func TestNoProtectedStackIsPreviewed(t *testing.T) {
	t.Parallel()

	w, _ := load(t, "preview.yaml")
	previewable := w.Jobs["previewable"]

	assert.Contains(t, w.Jobs["own"].Needs, "previewable")
	assert.Contains(t, previewable.Steps[0].with("ref"), "pull_request.base.sha")
	assert.False(t, previewable.hasSecrets())

	last := previewable.Steps[len(previewable.Steps)-1]
	assert.Contains(t, last.Run, `.bin/talos-proxmox previewable "${stacks[@]}"`)
	assert.Equal(t, "${{ vars.PREVIEW_STACKS }}", last.Env["STACKS"])
}
