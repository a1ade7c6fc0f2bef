package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCompleteEndpoint(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"10.0.0.2":                      "https://10.0.0.2:8006/",
		"pve1.example.org":              "https://pve1.example.org:8006/",
		"https://10.0.0.2/":             "https://10.0.0.2:8006/",
		"https://10.0.0.2:8443/":        "https://10.0.0.2:8443/",
		"http://10.0.0.2":               "http://10.0.0.2:8006/", // which is refused by its scheme
		"https://pve.example.org:443/":  "https://pve.example.org:443/",
		"https://[2001:db8::2]":         "https://[2001:db8::2]:8006/",
		"not an address of any machine": "https://not an address of any machine",
	} {
		assert.Equal(t, want, completeEndpoint(text), text)
	}
}

// TestInitBeginsNothing: what is known before Proxmox is asked is said at once, and no file is written or replaced.
//
//nolint:paralleltest // the environment is the process's
func TestInitBeginsNothing(t *testing.T) {
	for _, key := range []string{"PROXMOX_VE_ENDPOINT", "PROXMOX_VE_API_TOKEN", "PROXMOX_VE_USERNAME", "PROXMOX_VE_AUTH_TICKET"} {
		t.Setenv(key, "")
	}

	folder := t.TempDir()
	existing := filepath.Join(folder, "Pulumi.prod.yaml")
	require.NoError(t, os.WriteFile(existing, []byte("mine"), 0o600))

	terminal, err := os.Open(os.DevNull)
	require.NoError(t, err)

	defer terminal.Close() //nolint:errcheck // it is only read

	for arguments, want := range map[string][]string{
		"init prod --yes": {"Pulumi.prod.yaml exists already and is not changed: name another stack, or move the file away"},
		"init new":        {"cannot ask without a terminal: pass --yes, and flags for what has no default"},
		"init new --yes": {
			"--endpoint: is missing: set a Proxmox host's API", "PROXMOX_VE_API_TOKEN: is missing: set user@realm!name=secret",
		},
		"init a/b/so:so --yes": {`"so:so" is not the name of a stack`},
	} {
		root := newRoot()
		root.SetArgs(append(strings.Fields(arguments), "--project", folder))
		root.SetIn(terminal)

		err := root.Execute()
		for _, words := range want {
			require.ErrorContains(t, err, words, arguments)
		}
	}

	content, err := os.ReadFile(existing) //nolint:gosec // the test's own
	require.NoError(t, err)
	assert.Equal(t, "mine", string(content))
	assert.NoFileExists(t, filepath.Join(folder, "Pulumi.new.yaml"))
}

// TestInitAsksForTheAddressAndTheToken, and shows no token.
//
//nolint:paralleltest // the environment is the process's
func TestInitAsksForTheAddressAndTheToken(t *testing.T) {
	for _, key := range []string{"PROXMOX_VE_ENDPOINT", "PROXMOX_VE_API_TOKEN", "PROXMOX_VE_USERNAME", "PROXMOX_VE_AUTH_TICKET"} {
		t.Setenv(key, "")
	}

	var out strings.Builder

	root := newRoot()
	root.SetArgs([]string{"init", "new", "--project", t.TempDir()})
	root.SetIn(strings.NewReader("127.0.0.1:1\nroot@pam!init=not-shown\n"))
	root.SetOut(&out)

	err := root.Execute()
	require.ErrorContains(t, err, "unable to read Proxmox at https://127.0.0.1:1")
	require.ErrorContains(t, err, "What to do: nothing answers at 127.0.0.1:1")
	assert.Contains(t, out.String(), "Address of a Proxmox host, such as https://10.0.0.2:8006/: API token")
	assert.NotContains(t, out.String()+err.Error(), "not-shown")
}
