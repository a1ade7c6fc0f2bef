package stacks

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// secretForms are the forms of secrets in plain text. Encrypted ones belong into stack files; made-up values in tests
// are shorter or words.
var secretForms = map[string]*regexp.Regexp{
	"a private key": regexp.MustCompile(
		`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----\s+(?:[A-Za-z0-9+/=]{40,}\s+){2}`,
	),
	"an age identity":             regexp.MustCompile(`AGE-SECRET-KEY-1[A-Z0-9]{50,}`),
	"a Pulumi access token":       regexp.MustCompile(`\bpul-[0-9a-f]{40}\b`),
	"a key of a cluster, in YAML": regexp.MustCompile(`client-key-data: *[A-Za-z0-9+/=]{100,}`),
	"a Talos secret": regexp.MustCompile(
		`(?m)^\s*(?:secretboxEncryptionSecret|aescbcEncryptionSecret): *[A-Za-z0-9+/]{43}=`,
	),
	"an access key of a cloud provider": regexp.MustCompile(`\bAKIA[0-9A-Z]{16}\b`),
}

// TestCommittedFilesHoldNoSecrets reads every committed file, including compressed ones. `make scan` searches their
// history.
func TestCommittedFilesHoldNoSecrets(t *testing.T) {
	t.Parallel()

	list, err := exec.Command("git", "-C", "..", "ls-files", "-z").Output()
	if err != nil {
		t.Skip("not a git work tree: there is no list of committed files")
	}

	paths := strings.Split(strings.TrimRight(string(list), "\x00"), "\x00")
	require.Greater(t, len(paths), 100)

	for _, path := range paths {
		content, err := os.ReadFile(filepath.Join("..", path))
		if os.IsNotExist(err) { // deleted, not yet committed
			continue
		}

		require.NoError(t, err)

		if strings.HasSuffix(path, ".gz") {
			zip, err := gzip.NewReader(bytes.NewReader(content))
			require.NoError(t, err, path)
			content, err = io.ReadAll(zip)
			require.NoError(t, err, path)
		}

		for what, form := range secretForms {
			assert.False(t, form.Match(content), "%s holds %s", path, what)
		}
	}
}

func TestSecretsAreRecognised(t *testing.T) {
	t.Parallel()

	line := strings.Repeat("QUJD", 16) + "\n"
	for what, text := range map[string]string{
		"a private key":                     "-----BEGIN OPENSSH " + "PRIVATE KEY-----\n" + line + line,
		"an age identity":                   "AGE-SECRET-" + "KEY-1" + strings.Repeat("QPZRY9X8", 8),
		"a Pulumi access token":             "pul-" + strings.Repeat("0123456789", 4),
		"a key of a cluster, in YAML":       "    client-key-data: " + strings.Repeat("LS0t", 40),
		"a Talos secret":                    "  secretboxEncryptionSecret: " + strings.Repeat("a", 43) + "=",
		"an access key of a cloud provider": "AKIA" + strings.Repeat("A1B2", 4),
	} {
		assert.Regexp(t, secretForms[what], text, what)
	}

	assert.Len(t, secretForms, 6)
}

// TestMakeHelpShowsEveryCommand expects each command of the Makefile with a description in a group that `make help`
// shows.
func TestMakeHelpShowsEveryCommand(t *testing.T) {
	t.Parallel()

	content, err := os.ReadFile("../Makefile")
	require.NoError(t, err)

	groups := regexp.MustCompile(`groups='([^']+)'`).FindSubmatch(content)
	require.Len(t, groups, 2)

	commands := regexp.MustCompile(`(?m)^([a-z0-9%-]+):.*## (.*)$`).FindAllStringSubmatch(string(content), -1)
	require.NotEmpty(t, commands)

	for _, command := range commands {
		group, _, _ := strings.Cut(command[2], ": ")
		assert.Contains(t, strings.Split(string(groups[1]), ","), group, command[1])
	}
}

// TestStackFilesAreValid plans the project's stack files, which users may have edited.
func TestStackFilesAreValid(t *testing.T) {
	t.Parallel()

	paths, err := filepath.Glob("../Pulumi.*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, paths)

	for _, path := range paths {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		_, err = PlanUnconnected("test", content)
		require.NoError(t, err, path)
	}
}
