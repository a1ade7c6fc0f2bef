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

// writesEvents is what a fake CLI does: it writes recorded events to the file of --event-log. Only a preview may go
// without checkpoints.
func writesEvents(t *testing.T, recording string) string {
	t.Helper()

	path := filepath.Join(t.TempDir(), "events")
	require.NoError(t, os.WriteFile(path, []byte(recordedPreview(t, recording)), 0o600))

	return `operation=$1
skips=
[ "$operation" != preview ] || skips=true
while [ $# -gt 0 ]; do
  if [ "$1" = --event-log ]; then
    [ "$PULUMI_DEBUG_COMMANDS:$PULUMI_SKIP_CHECKPOINTS" = "true:$skips" ] && [ -n "$PULUMI_LOG_ROTATION_MAX_TOTAL_MB" ] || exit 9
    cp "` + path + `" "$2"
    echo "what changes"
  fi
  shift
done`
}

// TestPreview makes the checks that the engine does not, shows what the engine prints, and judges its events.
func TestPreview(t *testing.T) {
	t.Parallel()

	folder := fakeProject(t, writesEvents(t, "drift"))
	out, err := output("preview", "prod", "--project", folder, "--refresh")
	require.NoError(t, err)
	assert.Equal(t, "what changes\nnote: prod-general-1 restarts: memory 12288 → 16384 MiB\n"+
		"The plan of stack prod (1 to update) loses nothing that cannot be restored.\n", out)

	assert.Equal(t, `gitopscheck tree 
gitopscheck stack --repository  prod
pulumi-analyzer-policy-go check policy/policy-config.prod.json
pulumi preview --suppress-outputs --event-log /.plan/prod.json --refresh --stack prod --parallel 64 `+
		`--policy-pack /.bin/pulumi-analyzer-policy-go --policy-pack-config policy/policy-config.prod.json
`, calls(t, folder))

	plan, err := os.ReadFile(filepath.Join(folder, ".plan", "prod.json"))
	require.NoError(t, err)
	assert.NotContains(t, string(plan), "exitStatus")

	out, err = output("preview", "prod", "--project", folder, "--output", "json")
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(out, "{"), out)

	// The engine runs in the project's folder, so that the path of its events must not be relative to this one.
	here, err := os.Getwd()
	require.NoError(t, err)
	relative, err := filepath.Rel(here, folder)
	require.NoError(t, err)
	_, err = output("preview", "prod", "--project", relative)
	require.NoError(t, err)

	for _, arguments := range [][]string{{"prod"}, nil} {
		out, err = output(append([]string{"preview", "--stored", "--markdown", "--project", folder}, arguments...)...)
		require.NoError(t, err)
		assert.Contains(t, out, "## Plan of stack `prod`")
	}

	_, err = output("preview", "dev", "--stored", "--project", folder)
	require.ErrorContains(t, err, "talos-proxmox preview dev writes it")

	_, err = output("preview", "--project", folder)
	require.ErrorContains(t, err, "name a stack; only --stored takes all that have a plan")
}

func TestChartsAreQueriedOnlyWithTheFlag(t *testing.T) {
	t.Parallel()

	folder := fakeProject(t, "")
	_, err := output("gitops", "check", "prod", "--project", folder, "--charts")
	require.NoError(t, err)
	assert.Equal(t, "gitopscheck tree  --charts\ngitopscheck stack --repository  prod\n", calls(t, folder))
}

// TestFailedPreviewIsStoredWithItsStatus: with --store the command succeeds, so that another job judges the plan.
func TestFailedPreviewIsStoredWithItsStatus(t *testing.T) {
	t.Parallel()

	folder := fakeProject(t, writesEvents(t, "drift")+"; exit 255")
	out, err := output("preview", "prod", "--store", "--project", folder)
	require.NoError(t, err)
	assert.Equal(t, "what changes\n", out)

	plan, err := os.ReadFile(filepath.Join(folder, ".plan", "prod.json"))
	require.NoError(t, err)
	assert.True(t, strings.HasSuffix(string(plan), `{"exitStatus":255}`+"\n"))

	_, err = output("preview", "prod", "--stored", "--project", folder)
	require.ErrorContains(t, err, "did not finish")

	out, err = output("preview", "prod", "--project", folder)
	require.EqualError(t, err, "pulumi preview: exit status 255, see above")
	assert.Equal(t, "what changes\n", out)

	_, err = output("preview", "prod", "--markdown", "--project", folder)
	require.ErrorContains(t, err, "pulumi preview: exit status 255, see above")
	require.ErrorContains(t, err, "did not finish")
}

// TestPreviewWithoutEventsIsNotStored: only its error remains, and the previous plan is removed.
func TestPreviewWithoutEventsIsNotStored(t *testing.T) {
	t.Parallel()

	folder := fakeProject(t, "exit 255")
	script(t, filepath.Join(folder, ".plan"), "prod.json", "planned before")

	_, err := output("preview", "prod", "--store", "--project", folder)
	require.ErrorContains(t, err, "pulumi preview: exit status 255, see above")
	assert.NoFileExists(t, filepath.Join(folder, ".plan", "prod.json"))
}

// TestFailedChecksStopCommands before the engine runs.
func TestFailedChecksStopCommands(t *testing.T) {
	t.Parallel()

	for _, verb := range []string{"preview", "deploy", "drift"} {
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
		"interactive": {"drift", nil, []string{"preview --suppress-outputs", "stack export", "up --refresh --event-log /.run/prod.json --stack"}, ""},
		"the pipeline": {
			"drift", []string{"--yes"}, []string{"preview --suppress-outputs", "stack export", "up --refresh --event-log /.run/prod.json --yes --non-interactive"}, "",
		},
		"a plan that loses": {"fewer-control-planes", []string{"--yes"}, []string{"preview --suppress-outputs"}, "talos-proxmox deploy lab --approve one-cp-2-vm,one-cp-3-vm"},
		"what is approved": {
			"fewer-control-planes",
			[]string{"--approve", "one-cp-2-vm,one-cp-3-vm"},
			[]string{"preview --suppress-outputs", "stack export", "up --refresh --event-log /.run/prod.json --stack"},
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			folder, states := fakeProject(t, writesEvents(t, test.plan)), t.TempDir()
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

			if test.failed != "" {
				return
			}

			log, err := os.Stat(filepath.Join(folder, ".run", "prod.json"))
			require.NoError(t, err)
			assert.Equal(t, os.FileMode(0o600), log.Mode(), "the user's only")
			assert.Positive(t, log.Size())

			logs, err := os.Stat(filepath.Join(folder, ".run"))
			require.NoError(t, err)
			assert.Equal(t, os.FileMode(0o700), logs.Mode().Perm())
		})
	}
}

func TestDeployThatFailed(t *testing.T) {
	t.Parallel()

	folder := fakeProject(t, writesEvents(t, "drift")+`; [ "$operation" != up ]`)
	_, err := output("deploy", "prod", "--yes", "--project", folder, "--directory", t.TempDir())
	require.ErrorContains(t, err, "talos-proxmox recover prod removes what it left")
}

// TestPluginsThatTheCLIDidNotWaitFor: what it prints about them is explained after a run that succeeded.
func TestPluginsThatTheCLIDidNotWaitFor(t *testing.T) {
	t.Parallel()

	const closed = `{"sequence": 9, "diagnosticEvent": {"severity": "error", "message": "Detected that /p/plugin exited prematurely."}}`

	engine := strings.Replace(writesEvents(t, "drift"), `"$2"`+"\n", `"$2"; echo '`+closed+`' >> "$2"`+"\n", 1)

	for _, arguments := range [][]string{{"preview"}, {"deploy", "--yes", "--directory", t.TempDir()}} {
		out, err := output(append(arguments, "prod", "--project", fakeProject(t, engine))...)
		require.NoError(t, err)
		assert.Equal(t, 1, strings.Count(out, "note: `exited prematurely. This is *always* a bug in the provider` above is about a plugin"), out)
	}
}

// TestTheLabsStack: commands about stack lab run on the embedded lab.
func TestTheLabsStack(t *testing.T) {
	t.Parallel()

	folder := fakeProject(t, "")
	script(t, filepath.Join(folder, "lab"), "go.mod", "")
	script(t, filepath.Join(folder, ".bin"), "lab", `echo "lab $*" >> "`+folder+`/calls"
export PULUMI_DEBUG_COMMANDS=true PULUMI_SKIP_CHECKPOINTS=true PULUMI_LOG_ROTATION_MAX_TOTAL_MB=1
`+writesEvents(t, "drift"))

	for _, arguments := range []string{"preview lab", "preview prod --on-lab --refresh"} {
		_, err := output(append(strings.Fields(arguments), "--project", folder)...)
		require.NoError(t, err, arguments)
	}

	for _, verb := range []string{"check", "recover"} {
		_, err := output(verb, "lab", "--project", folder)
		require.ErrorContains(
			t, err, "stack lab runs on the embedded lab and does not exist yet: make up brings it up", "this lab writes no file",
		)
	}

	_, err := output("status", "dev", "--on-lab", "--project", folder)
	require.ErrorContains(t, err, "stack dev runs on the embedded lab and does not exist yet: .bin/lab up --stack dev brings it up")
	_, err = output("preview", "--stored", "--on-lab", "--project", folder)
	require.ErrorContains(t, err, "--stored judges plans that are there; omit --on-lab")

	assert.Equal(t, `lab start
lab preview --stack lab --policy --event-log /.plan/lab.json
lab start
lab preview --stack prod --policy --policy-config policy/policy-config.prod.json --event-log /.plan/prod.json --refresh
lab status --quiet
lab configure --stack lab
lab status --quiet
lab configure --stack lab
lab status --quiet
lab configure --stack dev
`, calls(t, folder))

	_, err = output("deploy", "lab", "--project", folder)
	require.ErrorContains(t, err, "stack lab has no Proxmox of its own: make up brings it up")

	script(t, filepath.Join(folder, ".bin"), "lab", "exit 1")

	for _, verb := range []string{"status", "drift"} {
		_, err = output(verb, "lab", "--project", folder)
		require.EqualError(t, err, "the lab does not run: `.bin/lab start` starts it with what it has, `make up` also brings up stack lab",
			"and is not started")
	}
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
		{"check", "dev\nedge\nhardened\nlab\nprod\n:4\n"},
		{"status prod", "prod\n:4\n"},
		{"preview prod --output", "json\ntext\n:4\n"},
	} {
		arguments := append([]string{"__complete", "--project", sampleStacks}, strings.Fields(test.arguments)...)
		out, err := output(append(arguments, "")...)
		require.NoError(t, err)
		assert.Equal(t, test.want, out, test.arguments)
	}
}
