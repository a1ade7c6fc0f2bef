package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/scripttest"
)

// script writes a bash program to a folder and returns its path.
func script(t *testing.T, folder, name, body string) string {
	t.Helper()

	path := filepath.Join(folder, name)
	scripttest.Program(t, path, "#!/bin/bash\n"+body+"\n")

	return path
}

// fakeProject creates a project with the sample stack prod and a GitOps path. Its programs log their calls; pulumi also
// runs the given script.
func fakeProject(t *testing.T, pulumi string) (folder string) {
	t.Helper()

	folder = t.TempDir()
	bin, calls := filepath.Join(folder, ".bin"), filepath.Join(folder, "calls")

	content, err := os.ReadFile(filepath.Join(sampleStacks, "Pulumi.prod.yaml"))
	require.NoError(t, err)

	file := strings.Replace(string(content), "    - name: prod\n",
		"    - name: prod\n      cni: {}\n      gitops: {url: https://git.example.org/fleet, path: clusters/prod}\n", 1)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "Pulumi.prod.yaml"), []byte(file), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(folder, "policy"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "policy", "policy-config.prod.json"), []byte("{}"), 0o600))

	logCall := `echo "${0##*/} $*" >> "` + calls + `"` + "\n"
	for _, name := range []string{"gitopscheck", "pulumi-analyzer-policy-go", "talosops", "lab"} {
		script(t, bin, name, logCall)
	}

	script(t, bin, "pulumi", logCall+pulumi)

	return folder
}

// calls returns the log of calls, without the folder.
func calls(t *testing.T, folder string) string {
	t.Helper()

	text, err := os.ReadFile(filepath.Join(folder, "calls"))
	require.NoError(t, err)

	return strings.ReplaceAll(string(text), folder, "")
}

// TestGuardPlansFirst: the guard runs the checks that the engine does not, then judges a new preview.
func TestGuardPlansFirst(t *testing.T) {
	t.Parallel()

	folder := fakeProject(t, `cat "`+unpackPreview(t, "drift.events")+
		`"; [ "$PULUMI_ENABLE_STREAMING_JSON_PREVIEW" = true ] && [ -n "$PULUMI_LOG_ROTATION_MAX_TOTAL_MB" ]`)
	out, err := output("guard", "prod", "--project", folder, "--refresh")
	require.NoError(t, err)
	assert.Contains(t, out, "The plan of stack prod (1 to update) loses nothing")

	assert.Equal(t, `gitopscheck tree 
gitopscheck stack --repository  prod
pulumi-analyzer-policy-go check policy/policy-config.prod.json
pulumi preview --refresh --non-interactive --json --show-sames --stack prod --parallel 64 `+
		`--policy-pack /.bin/pulumi-analyzer-policy-go --policy-pack-config policy/policy-config.prod.json
`, calls(t, folder))

	plan, err := os.ReadFile(filepath.Join(folder, ".plan", "prod.json"))
	require.NoError(t, err)
	assert.NotContains(t, string(plan), "exitStatus")

	out, err = output("review", "--project", folder)
	require.NoError(t, err)
	assert.Contains(t, out, "## Plan of stack `prod`")

	out, err = output("review", "prod", "--project", folder)
	require.NoError(t, err)
	assert.Contains(t, out, "## Plan of stack `prod`")

	_, err = output("review", "prdo", "--project", folder)
	require.ErrorContains(t, err, `"prdo" is neither a stack nor a file: stacks are `)
}

func TestChartsAreQueriedOnlyWithTheFlag(t *testing.T) {
	t.Parallel()

	folder := fakeProject(t, "")
	_, err := output("gitops", "check", "prod", "--project", folder, "--charts")
	require.NoError(t, err)
	assert.Equal(t, "gitopscheck tree  --charts\ngitopscheck stack --repository  prod\n", calls(t, folder))
}

// TestFailedPreviewIsStoredWithItsStatus: plan succeeds, so that the comment reports the reason, and the guard fails.
func TestFailedPreviewIsStoredWithItsStatus(t *testing.T) {
	t.Parallel()

	folder := fakeProject(t, `cat "`+unpackPreview(t, "drift.events")+`"; exit 255`)
	_, err := output("plan", "prod", "--project", folder)
	require.NoError(t, err)

	plan, err := os.ReadFile(filepath.Join(folder, ".plan", "prod.json"))
	require.NoError(t, err)
	assert.True(t, strings.HasSuffix(string(plan), `{"exitStatus":255}`+"\n"))

	_, err = output("guard", "prod", "--project", folder, "--plan", filepath.Join(folder, ".plan", "prod.json"))
	require.ErrorContains(t, err, "did not finish")
}

// TestPreviewWithoutOutputIsNotStored: only its error remains, and the previous plan is removed.
func TestPreviewWithoutOutputIsNotStored(t *testing.T) {
	t.Parallel()

	folder := fakeProject(t, "exit 255")
	script(t, filepath.Join(folder, ".plan"), "prod.json", "planned before")

	_, err := output("plan", "prod", "--project", folder)
	require.ErrorContains(t, err, "pulumi preview: exit status 255, see above")
	assert.NoFileExists(t, filepath.Join(folder, ".plan", "prod.json"))
}

// TestFailedChecksStopCommands before the engine runs.
func TestFailedChecksStopCommands(t *testing.T) {
	t.Parallel()

	for _, verb := range []string{"plan", "guard", "preview", "deploy", "drift"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()

			folder := fakeProject(t, "")
			script(t, filepath.Join(folder, ".bin"), "gitopscheck", `echo "cluster prod lacks a disk" >&2; exit 1`)

			_, err := output(verb, "prod", "--project", folder)
			require.ErrorContains(t, err, "gitopscheck tree: exit status 1")
			assert.NoFileExists(t, filepath.Join(folder, "calls"))
			assert.NoFileExists(t, filepath.Join(folder, ".plan", "prod.json"), "an empty plan would be an error in the comment")
		})
	}
}

// TestDeploySteps: the guard with a refresh and approvals; a copy of the state; then up, which asks for confirmation
// without --yes.
func TestDeploySteps(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		plan   string
		flags  []string
		steps  []string // of the engine
		failed string
	}{
		"interactive": {"drift.events", nil, []string{"preview --refresh", "stack export", "up --refresh --stack"}, ""},
		"the pipeline": {
			"drift.events", []string{"--yes"}, []string{"preview --refresh", "stack export", "up --refresh --yes --non-interactive"}, "",
		},
		"a plan that loses": {"fewer-control-planes.events", []string{"--yes"}, []string{"preview --refresh"}, "talos-proxmox deploy lab --approve one-cp-2-vm,one-cp-3-vm"},
		"what is approved": {
			"fewer-control-planes.events",
			[]string{"--approve", "one-cp-2-vm,one-cp-3-vm"},
			[]string{"preview --refresh", "stack export", "up --refresh --stack"},
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			folder, states := fakeProject(t, `[ "$1" != preview ] || cat "`+unpackPreview(t, test.plan)+`"`), t.TempDir()
			_, err := output(append([]string{"deploy", "prod", "--project", folder, "--directory", states}, test.flags...)...)

			if test.failed == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.failed)
			}

			var steps []string

			for line := range strings.Lines(calls(t, folder)) {
				if step, ok := strings.CutPrefix(line, "pulumi "); ok {
					steps = append(steps, step)
				}
			}

			require.Len(t, steps, len(test.steps), steps)

			for i, step := range test.steps {
				assert.True(t, strings.HasPrefix(steps[i], step+" "), steps[i])
			}

			files, err := os.ReadDir(states)
			require.NoError(t, err)
			assert.Len(t, files, min(len(test.steps)-1, 1), "the state is saved before up")
			assert.Equal(t, 1, strings.Count(calls(t, folder), "gitopscheck stack"), "checked once for plan and up")
		})
	}
}

func TestDeployThatFailed(t *testing.T) {
	t.Parallel()

	folder := fakeProject(t, `[ "$1" != preview ] || cat "`+unpackPreview(t, "drift.events")+`"; [ "$1" != up ]`)
	_, err := output("deploy", "prod", "--yes", "--project", folder, "--directory", t.TempDir())
	require.ErrorContains(t, err, "talos-proxmox recover prod removes what it left")
}

// TestTheLabsStack: commands about stack lab run on the embedded lab.
func TestTheLabsStack(t *testing.T) {
	t.Parallel()

	folder := fakeProject(t, "")
	script(t, filepath.Join(folder, "lab"), "go.mod", "")

	for _, arguments := range []string{"preview lab", "plan prod --on-lab --refresh"} {
		_, err := output(append(strings.Fields(arguments), "--project", folder)...)
		require.NoError(t, err, arguments)
	}

	for _, verb := range []string{"check", "recover"} {
		_, err := output(verb, "lab", "--project", folder)
		require.ErrorContains(
			t, err, "stack lab runs on the embedded lab and does not exist yet: make up brings it up", "this lab writes no file",
		)
	}

	assert.Equal(t, `lab start
lab preview --stack lab --policy
lab start
lab preview --stack prod --policy --policy-config policy/policy-config.prod.json --json --refresh
lab start
lab configure
lab start
lab configure
`, calls(t, folder))

	_, err := output("deploy", "lab", "--project", folder)
	require.ErrorContains(t, err, "stack lab has no Proxmox of its own: make up brings it up")
}

// TestBackupState: the exported state is readable by its owner only; the state of stack lab is in .lab.
func TestBackupState(t *testing.T) {
	t.Parallel()

	folder := fakeProject(t, `echo "$PULUMI_BACKEND_URL in $PWD"`)
	script(t, filepath.Join(folder, "lab"), "go.mod", "")
	script(t, filepath.Join(folder, ".lab", "work"), "Pulumi.lab.yaml", "")

	for stack, want := range map[string]string{
		"prod": "in " + folder + "\n", "lab": "file://" + folder + "/.lab/state in " + folder + "/.lab/work\n",
	} {
		backups := filepath.Join(folder, "backups of "+stack)
		out, err := output("backup", "state", stack, "--project", folder, "--directory", backups)
		require.NoError(t, err)

		path := strings.TrimSpace(out)
		assert.Regexp(t, "^"+backups+"/"+stack+`-\d{8}T\d{6}Z\.json$`, path)

		content, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.True(t, strings.HasSuffix(string(content), want), "%s", content)

		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode())
	}
}

// TestCompletion of the project's stacks and of names in their plans.
func TestCompletion(t *testing.T) {
	t.Parallel()

	for _, test := range []struct{ arguments, want string }{
		{"check", "dev\nlab\nprod\n:4\n"},
		{"status prod", "prod\n:4\n"},
		{"guard prod --output", "json\ntext\n:4\n"},
	} {
		arguments := append([]string{"__complete", "--project", sampleStacks}, strings.Fields(test.arguments)...)
		out, err := output(append(arguments, "")...)
		require.NoError(t, err)
		assert.Equal(t, test.want, out, test.arguments)
	}
}
