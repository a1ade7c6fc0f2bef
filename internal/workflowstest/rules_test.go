package workflowstest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
)

const folder = "../../.github/workflows"

// ownActions returns the steps of the actions in .github/actions, by the path in workflows.
func ownActions(t *testing.T) map[string][]step {
	t.Helper()

	files, err := filepath.Glob(filepath.Join(folder, "../actions/*/action.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)

	actions := map[string][]step{}

	for _, path := range files {
		text, err := os.ReadFile(path)
		require.NoError(t, err)

		var action struct {
			Runs struct {
				Using string
				Steps []step
			}
		}
		require.NoError(t, yaml.Unmarshal(text, &action))
		require.Equal(t, "composite", action.Runs.Using, path)
		actions["./.github/actions/"+filepath.Base(filepath.Dir(path))] = action.Runs.Steps
	}

	return actions
}

func load(t *testing.T, file string) (workflow, string) {
	t.Helper()

	text, err := os.ReadFile(filepath.Join(folder, file))
	require.NoError(t, err)
	w, err := parse(text, ownActions(t))
	require.NoError(t, err, file)

	return w, string(text)
}

func TestWorkflowsKeepTheRules(t *testing.T) {
	t.Parallel()

	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	require.NoError(t, err)
	require.Len(t, files, 7)

	for _, path := range files {
		w, _ := load(t, filepath.Base(path))
		assert.NotEmpty(t, w.Jobs, path)
		assert.NotEmpty(t, w.triggers(), path)
		assert.Empty(t, check(w), path)
	}
}

func TestUpRunsOnTheDefaultBranchAlone(t *testing.T) {
	t.Parallel()
	w, _ := load(t, "up.yaml")

	assert.Equal(t, []string{"push", "workflow_dispatch"}, w.triggers())

	var on struct {
		Push     struct{ Branches []string }
		Dispatch struct {
			Inputs map[string]struct {
				Type    string
				Options []string
			}
		} `yaml:"workflow_dispatch"`
	}
	require.NoError(t, w.On.Decode(&on))
	assert.Equal(t, []string{"main"}, on.Push.Branches)
	assert.Equal(t, "choice", on.Dispatch.Inputs["stack"].Type)
	assert.Equal(t, stacksWithHosts(t), on.Dispatch.Inputs["stack"].Options)

	up, check := w.Jobs["up"], w.Jobs["branch"]
	assert.Contains(t, up.Needs, "branch")
	require.Len(t, check.Steps, 1)
	assert.Contains(t, check.Steps[0].Env["WANTED"], "github.event.repository.default_branch")
	assert.Contains(t, check.Steps[0].Run, "exit 1")
	assert.Contains(t, w.Concurrency.Group, "inputs.stack", "stacks do not wait for each other")
	assert.False(t, w.Concurrency.Cancel, "a run that changes machines is not interrupted")

	var scripts []string
	for _, s := range up.Steps {
		scripts = append(scripts, s.Run)
	}

	all := strings.Join(scripts, "\n")
	assert.Contains(
		t, all, `.bin/talos-proxmox deploy "$STACK" --yes`, "guard, backup and up are the same as in a manual deployment",
	)
	assert.NotContains(t, all, "pulumi up")
}

// stacksWithHosts returns the committed stacks except the lab's.
func stacksWithHosts(t *testing.T) []string {
	t.Helper()

	files, err := filepath.Glob("../../Pulumi.*.yaml")
	require.NoError(t, err)

	var stacks []string

	for _, path := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "Pulumi."), ".yaml")
		if name != "lab" {
			stacks = append(stacks, name)
		}
	}

	slices.Sort(stacks)

	return stacks
}

func TestJobsWithWriteAccessRunNoNewCode(t *testing.T) {
	t.Parallel()
	update, _ := load(t, "update.yaml")
	assert.True(t, update.canWrite(update.Jobs["pull-request"]))
	assert.False(t, update.canWrite(update.Jobs["test"]))
	assert.Contains(t, update.Jobs["pull-request"].Needs, "test")

	preview, _ := load(t, "preview.yaml")
	assert.True(t, preview.canWrite(preview.Jobs["judge"]))
	assert.Contains(
		t, preview.Jobs["judge"].Steps[0].with("ref"), "pull_request.base.sha", "the guard is the base branch's",
	)

	for _, name := range []string{"lab", "own"} {
		assert.False(t, preview.canWrite(preview.Jobs[name]), name)
		assert.Contains(t, preview.Jobs["judge"].Needs, name)
	}

	assert.Equal(t, "preview", preview.Jobs["own"].Environment)
	assert.False(t, preview.Jobs["lab"].hasSecrets())
}

// TestTheRulesFindEachMistake introduces one mistake into a valid workflow.
func TestTheRulesFindEachMistake(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct{ file, replace, with, want string }{
		"a secret for every step": {
			"up.yaml", "APPROVE: ${{ inputs.approve }}", "PASS: ${{ secrets.PULUMI_CONFIG_PASSPHRASE }}",
			"env.PASS is a secret in the environment of every step",
		},
		"a secret for every job": {
			"up.yaml", "jobs:", "env: {PASS: \"${{ secrets.X }}\"}\njobs:",
			"env.PASS is a secret in the environment of every job",
		},
		"a secret for an action": {
			"up.yaml", "with: {pulumi-version: 3.274.1}",
			"with: {pulumi-version: 3.274.1}\n        env: {PASS: \"${{ secrets.X }}\"}", "gives env.PASS to an action",
		},
		"an action by its tag": {
			"drift.yaml", "checkout@3d3c42e5aac5ba805825da76410c181273ba90b1", "checkout@v5", "not pinned by a digest",
		},
		"no group":                    {"drift.yaml", "group: drift", "group: ''", "no concurrency group"},
		"permissions of the settings": {"drift.yaml", "permissions: {}", "", "the permission  of the repository's settings"},
		"a workflow that may write": {
			"drift.yaml", "permissions: {}", "permissions: {contents: write}", "the permission contents write",
		},
		"an input in a script": {
			"up.yaml", `deploy "$STACK"`, "deploy ${{ inputs.stack }}", "value from outside in its script",
		},
		"a cache beside secrets": {
			"up.yaml", "cache: false", "cache: true", "restores what a less trusted job may have written",
		},
		"the tools' cache beside secrets": {
			"drift.yaml", "- run: make stack-tools", "- uses: ./.github/actions/tools\n      - run: make stack-tools",
			"restores what a less trusted job may have written",
		},
		"its own action that is none": {
			"check.yaml", "./.github/actions/tools", "./.github/actions/none", "not pinned by a digest",
		},
		"no environment": {"drift.yaml", "environment: drift", "", "has secrets and no environment"},
		"the token left behind": {
			"check.yaml", "persist-credentials: false", "persist-credentials: true", "leaves the token in the work tree",
		},
		"a pull request with the base's": {
			"preview.yaml", "pull_request:", "pull_request_target:", "pull_request_target runs with the base's secrets",
		},
		"production's passphrase": {
			"preview.yaml", "secrets.PREVIEW_PULUMI_CONFIG_PASSPHRASE", "secrets.PULUMI_CONFIG_PASSPHRASE",
			"shows the secret PULUMI_CONFIG_PASSPHRASE to a pull request's code",
		},
		"the pull request judges itself": {
			"preview.yaml", ", ref: \"${{ github.event.pull_request.base.sha }}\"", "",
			"checks the pull request out, and the token may write",
		},
		"the hosts' runner": {
			"preview.yaml", "PREVIEW_RUNNER", "PROXMOX_RUNNER", "on the runner that reaches the hosts",
		},
		"new dependencies with a token": {
			"update.yaml", "name: Open a pull request", "run: make test\n      - name: Open a pull request",
			"runs the project's code, and the token may write",
		},
		"the cache of untested code": {
			"update.yaml", "cache: false", "cache: true", "restores what a less trusted job may have written",
		},
		"a preview without its environment": {
			"preview.yaml", "    environment: preview\n", "", "shows secrets to a pull request's code without an environment",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, text := load(t, test.file)
			require.Contains(t, text, test.replace)
			w, err := parse([]byte(strings.Replace(text, test.replace, test.with, 1)), ownActions(t))
			require.NoError(t, err)

			assert.Contains(t, strings.Join(check(w), "\n"), test.want)
		})
	}
}

func TestNamesAreOneOrAList(t *testing.T) {
	t.Parallel()

	var n struct{ A, B names }
	require.NoError(t, yaml.Unmarshal([]byte("{a: x, b: [y, z]}"), &n))
	assert.Equal(t, names{"x"}, n.A)
	assert.Equal(t, names{"y", "z"}, n.B)
}
