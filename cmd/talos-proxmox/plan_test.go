package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// script puts a program in bash into a folder.
func script(t *testing.T, folder, name, text string) string {
	t.Helper()

	path := filepath.Join(folder, name)
	require.NoError(t, os.MkdirAll(folder, 0o700))
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/bash\n"+text+"\n"), 0o700)) //nolint:gosec // it is run

	return path
}

// fakeProject is one with the delivered stack prod, to which a GitOps path is added. Its programs note how they are
// called; pulumi then does what the text says.
func fakeProject(t *testing.T, pulumi string) (folder string) {
	t.Helper()

	folder = t.TempDir()
	bin, calls := filepath.Join(folder, ".bin"), filepath.Join(folder, "calls")

	content, err := os.ReadFile(filepath.Join(delivered, "Pulumi.prod.yaml"))
	require.NoError(t, err)

	file := strings.Replace(string(content), "    - name: prod\n",
		"    - name: prod\n      cni: {}\n      gitops: {url: https://git.example.org/fleet, path: clusters/prod}\n", 1)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "Pulumi.prod.yaml"), []byte(file), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(folder, "policy"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "policy", "policy-config.prod.json"), []byte("{}"), 0o600))

	note := `echo "${0##*/} $*" >> "` + calls + `"` + "\n"
	for _, name := range []string{"gitopscheck", "pulumi-analyzer-policy-go", "talosops", "lab"} {
		script(t, bin, name, note)
	}

	script(t, bin, "pulumi", note+pulumi)

	return folder
}

func calls(t *testing.T, folder string) string {
	t.Helper()

	text, err := os.ReadFile(filepath.Join(folder, "calls"))
	require.NoError(t, err)

	return strings.ReplaceAll(string(text), folder, "")
}

// TestGuardPlansFirst: the guard judges what the engine says now, after the checks of what the engine does not know.
func TestGuardPlansFirst(t *testing.T) {
	t.Parallel()

	folder := fakeProject(t, `cat "`+unpacked(t, "drift.events")+
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
}

// TestAPreviewThatFailsIsKeptWithItsStatus: plan goes on, so that the comment says why, and the guard fails.
func TestAPreviewThatFailsIsKeptWithItsStatus(t *testing.T) {
	t.Parallel()

	folder := fakeProject(t, `cat "`+unpacked(t, "drift.events")+`"; exit 255`)
	_, err := output("plan", "prod", "--project", folder)
	require.NoError(t, err)

	plan, err := os.ReadFile(filepath.Join(folder, ".plan", "prod.json"))
	require.NoError(t, err)
	assert.True(t, strings.HasSuffix(string(plan), `{"exitStatus":255}`+"\n"))

	_, err = output("guard", "prod", "--project", folder, "--plan", filepath.Join(folder, ".plan", "prod.json"))
	require.ErrorContains(t, err, "did not come to its end")
}

// TestNothingIsPlannedOrBroughtUpAgainstTheChecks: what they refuse ends the command before the engine is called.
func TestNothingIsPlannedOrBroughtUpAgainstTheChecks(t *testing.T) {
	t.Parallel()

	for _, verb := range []string{"plan", "guard", "preview", "deploy", "drift"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()

			folder := fakeProject(t, "")
			script(t, filepath.Join(folder, ".bin"), "gitopscheck", `echo "cluster prod lacks a disk" >&2; exit 1`)

			_, err := output(verb, "prod", "--project", folder)
			require.ErrorContains(t, err, "gitopscheck tree: exit status 1")
			assert.NoFileExists(t, filepath.Join(folder, "calls"))
		})
	}
}

func TestDeploy(t *testing.T) {
	t.Parallel()

	folder := fakeProject(t, "exit 1")
	_, err := output("deploy", "prod", "--project", folder)
	require.ErrorContains(t, err, "talos-proxmox recover prod removes what it left")
	assert.Contains(t, calls(t, folder), "\npulumi up --yes --non-interactive --refresh --stack prod ")
}

// TestTheLabsStack: stack lab of a project that embeds the lab is asked of it.
func TestTheLabsStack(t *testing.T) {
	t.Parallel()

	folder := fakeProject(t, "")
	script(t, filepath.Join(folder, "lab"), "go.mod", "")

	for _, arguments := range []string{
		"check lab", "facts lab pve1", "recover lab --vmid 3000 --confirm one", "preview lab", "plan prod --on-lab --refresh",
	} {
		_, err := output(append(strings.Fields(arguments), "--project", folder)...)
		require.NoError(t, err, arguments)
	}

	assert.Equal(t, `lab start
lab check
lab start
lab host facts pve1
lab start
lab recover --vmid 3000 --confirm one
lab start
lab preview --stack lab --policy
lab start
lab preview --stack prod --policy --policy-config policy/policy-config.prod.json --json --refresh
`, calls(t, folder))

	_, err := output("deploy", "lab", "--project", folder)
	require.ErrorContains(t, err, "stack lab has no Proxmox of its own: make up brings it up")
	_, err = output("status", "lab", "--project", folder)
	require.ErrorContains(t, err, "stack lab runs on the embedded lab, which has not had it yet: make up brings it up")
}

// TestBackupState keeps what the CLI exports for its owner only; the state of stack lab is in .lab.
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

// TestCompletion completes stacks of the project, and what their files plan.
func TestCompletion(t *testing.T) {
	t.Parallel()

	for _, test := range []struct{ arguments, want string }{
		{"check", "dev\nlab\nprod\n:4\n"},
		{"status prod", "prod\n:4\n"},
		{"facts prod pve1", "pve2\npve3\n:4\n"},
		{"guard prod --output", "json\ntext\n:4\n"},
	} {
		arguments := append([]string{"__complete", "--project", delivered}, strings.Fields(test.arguments)...)
		out, err := output(append(arguments, "")...)
		require.NoError(t, err)
		assert.Equal(t, test.want, out, test.arguments)
	}
}
