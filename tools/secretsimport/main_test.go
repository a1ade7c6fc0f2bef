package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/getsops/sops/v3"
	"github.com/getsops/sops/v3/aes"
	sopsage "github.com/getsops/sops/v3/age"
	"github.com/getsops/sops/v3/cmd/sops/common"
	"github.com/getsops/sops/v3/cmd/sops/formats"
	"github.com/getsops/sops/v3/config"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	token      = "talos@pve!pulumi=6d5f1f0a-3c0e-4f4e-9a43-5f2c3a1b7e11"
	privateKey = "line one of a key\nline two of a key\n"
	other      = "of no concern"
)

// encrypt writes a file like `sops --encrypt --age`, and sets the key for sops.
func encrypt(t *testing.T, name, plain string) string {
	t.Helper()
	identity, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	t.Setenv("SOPS_AGE_KEY", identity.String())

	store := common.StoreForFormat(formats.FormatForPath(name), config.NewStoresConfig())
	branches, err := store.LoadPlainFile([]byte(plain))
	require.NoError(t, err)
	key, err := sopsage.MasterKeyFromRecipient(identity.Recipient().String())
	require.NoError(t, err)
	tree := sops.Tree{Branches: branches, Metadata: sops.Metadata{KeyGroups: []sops.KeyGroup{{key}}, Version: "3.11.0"}}
	dataKey, errs := tree.GenerateDataKey()
	require.Empty(t, errs)
	require.NoError(t, common.EncryptTree(common.EncryptTreeOpts{DataKey: dataKey, Tree: &tree, Cipher: aes.NewCipher()}))
	encrypted, err := store.EmitEncryptedFile(tree)
	require.NoError(t, err)
	require.NotContains(t, string(encrypted), token)
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, encrypted, 0o600))

	return path
}

// stack is a project with one stack and the real CLI, whose arguments are logged.
type stack struct {
	t                    *testing.T
	dir, pulumi, callLog string
}

func newStack(t *testing.T) stack {
	t.Helper()
	real, err := filepath.Abs("../../.bin/pulumi")
	require.NoError(t, err)
	require.FileExists(t, real, "`make tools` builds it")

	s := stack{t: t, dir: t.TempDir()}
	s.pulumi, s.callLog = filepath.Join(s.dir, "noting-pulumi"), filepath.Join(s.dir, "calls")
	script := fmt.Sprintf("#!/bin/sh\nprintf '%%s\\n' \"$*\" >> %q\nexec %q \"$@\"\n", s.callLog, real)
	require.NoError(t, os.WriteFile(s.pulumi, []byte(script), 0o700))
	require.NoError(
		t, os.WriteFile(filepath.Join(s.dir, "Pulumi.yaml"), []byte("name: talos-proxmox\nruntime: go\n"), 0o600),
	)
	require.NoError(t, os.Mkdir(filepath.Join(s.dir, "state"), 0o700))
	t.Setenv("PULUMI_BACKEND_URL", "file://"+filepath.Join(s.dir, "state"))
	t.Setenv("PULUMI_HOME", filepath.Join(s.dir, "home"))
	t.Setenv("PULUMI_CONFIG_PASSPHRASE", "of this test")
	s.cli("stack", "init", "prod", "--non-interactive")

	return s
}

func (s stack) cli(args ...string) string {
	s.t.Helper()
	cmd := exec.Command(s.pulumi, args...)
	cmd.Dir = s.dir
	out, err := cmd.Output()
	require.NoError(s.t, err, "%v", args)

	return strings.TrimSuffix(string(out), "\n")
}

func (s stack) secretsimport(args ...string) (string, error) {
	var out bytes.Buffer
	root := newRoot()
	root.SetOut(&out)
	root.SetArgs(append(args, "--stack", "prod", "--project", s.dir, "--pulumi", s.pulumi))
	err := root.Execute()

	return out.String(), err
}

func (s stack) file() string {
	s.t.Helper()
	content, err := os.ReadFile(filepath.Join(s.dir, "Pulumi.prod.yaml"))
	require.NoError(s.t, err)

	return string(content)
}

func TestSecretsOfASOPSFileAreStoredEncrypted(t *testing.T) {
	s := newStack(t)
	file := encrypt(
		t, "secrets.enc.yaml", fmt.Sprintf("proxmoxve:apiToken: %s\ntalos-proxmox:sshPrivateKey: %q\n", token, privateKey),
	)

	out, err := s.secretsimport("--dry-run", file)
	require.NoError(t, err)
	assert.Equal(t, "proxmoxve:apiToken: would be stored\ntalos-proxmox:sshPrivateKey: would be stored\n", out)
	assert.NotContains(t, s.file(), "apiToken")

	out, err = s.secretsimport(file)
	require.NoError(t, err)
	assert.Equal(t, "proxmoxve:apiToken: stored\ntalos-proxmox:sshPrivateKey: stored\n", out)
	assert.Equal(t, token, s.cli("config", "get", "proxmoxve:apiToken", "--stack", "prod"))
	assert.Equal(
		t, strings.TrimSpace(privateKey),
		strings.TrimSpace(s.cli("config", "get", "talos-proxmox:sshPrivateKey", "--stack", "prod")),
	)

	before := s.file()
	assert.Equal(t, 2, strings.Count(before, "secure:"))
	out, err = s.secretsimport(file)
	require.NoError(t, err)
	assert.Equal(t, "proxmoxve:apiToken: is stored already\ntalos-proxmox:sshPrivateKey: is stored already\n", out)
	assert.Equal(t, before, s.file(), "a second import changes nothing")

	calls, err := os.ReadFile(s.callLog)
	require.NoError(t, err)
	for what, text := range map[string]string{
		"an argument list": string(calls), "the stack's file": before, "the output": out,
	} {
		assert.NotContains(t, text, token[20:], what)
		assert.NotContains(t, text, "line one", what)
	}
}

func TestSingleValuesAreMapped(t *testing.T) {
	s := newStack(t)
	file := encrypt(t, "secrets.json", fmt.Sprintf(`{"proxmox": {"tokens": [{"secret": %q}]}, "cloud": %q}`, token, other))

	out, err := s.secretsimport("--map", "proxmox.tokens[0].secret=proxmoxve:apiToken", file)
	require.NoError(t, err)
	assert.Equal(t, "proxmoxve:apiToken: stored\n", out)
	assert.Equal(t, token, s.cli("config", "get", "proxmoxve:apiToken", "--stack", "prod"))
}

func TestWhatCannotBeImported(t *testing.T) {
	s := newStack(t)
	file := encrypt(t, "secrets.yaml", fmt.Sprintf("proxmox: {token: %s, empty: \"\"}\n", token))

	_, err := s.secretsimport(file)
	require.ErrorContains(
		t, err,
		"proxmox.token: is not a configuration key; name the one it goes to: --map 'proxmox.token=proxmoxve:apiToken'",
	)
	require.ErrorContains(t, err, "proxmox.empty", "every problem at once")
	assert.NotContains(t, err.Error(), token)

	_, err = s.secretsimport("--map", "proxmox.toke=proxmoxve:apiToken", file)
	require.ErrorContains(t, err, "proxmox.toke: is not in the file; it has proxmox.empty, proxmox.token")

	t.Setenv("SOPS_AGE_KEY", "")
	_, err = s.secretsimport(file)
	require.ErrorContains(t, err, "is the key there (SOPS_AGE_KEY_FILE)?")

	plain := filepath.Join(t.TempDir(), "plain.yaml")
	require.NoError(t, os.WriteFile(plain, []byte("proxmoxve:apiToken: "+token+"\n"), 0o600))
	_, err = s.secretsimport(plain)
	require.ErrorContains(t, err, "unable to decrypt")
	assert.NotContains(t, err.Error(), token)
	assert.NotContains(t, s.file(), "secure:")
}
