package engine

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/providers"
)

//nolint:paralleltest // the environment is the process's
func TestProvidersAreChosen(t *testing.T) {
	none, all, home := t.TempDir(), t.TempDir(), t.TempDir()

	for _, plugin := range providers.Plugins() {
		folder := filepath.Join(all, "plugins", "resource-"+plugin.Name+"-v"+plugin.Version)
		require.NoError(t, os.MkdirAll(folder, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(folder, "pulumi-resource-"+plugin.Name), []byte(plugin.Name), 0o600))
	}

	require.NoError(t, os.WriteFile(filepath.Join(all, "stand-ins"), []byte("stand-ins"), 0o600))

	const (
		nothing     = ""
		standIn     = `{"type": "pulumi:providers:proxmoxve", "outputs": {"__pulumi-go-provider-version": "v1.5.0"}}`
		byStandIns  = standIn + `, {"type": "proxmoxve:VM/virtualMachine:VirtualMachine", "outputs": {"name": "x"}}`
		byPublished = `{"type": "pulumi:providers:talos", "outputs": {}}, {"type": "talos:imageFactory/schematic:Schematic", "outputs": {"__pulumi_raw_state_delta": {}}}`
		machine     = `{"type": "pulumi:providers:proxmoxve", "outputs": {}}, {"type": "proxmoxve:VM/virtualMachine:VirtualMachine", "inputs": {"__defaults": ["cpu"], "cpu": {"cores": 1}, "disks": [%s]}}`
		imported    = `{"type": "pulumi:providers:talos", "outputs": {}}, {"type": "talos:machine/secrets:Secrets", "outputs": {}}`
		commands    = standIn + `, {"type": "command:local:Command", "outputs": {"stdout": "x"}}`
	)

	for name, test := range map[string]struct {
		home      string
		choice    Providers
		state     string
		published bool
		message   string // or the problem
	}{
		"auto takes what is installed": {
			all, Auto, nothing, true, "the published plugins proxmoxve 6.18.1, talos 0.7.1, command 1.2.1",
		},
		"nothing set is auto": {all, "", commands, true, "the published plugins"},
		"auto does without": {
			none, Auto, nothing, false,
			"the lab's stand-ins (published plugins not installed: proxmoxve 6.18.1, talos 0.7.1, command 1.2.1)",
		},
		"auto stays with what made the stack":      {all, Auto, byStandIns, false, "the lab's stand-ins"},
		"what was imported alone does not tell":    {none, Auto, imported, false, "the lab's stand-ins"},
		"stand-ins are used if requested":          {all, StandIn, nothing, false, "the lab's stand-ins"},
		"published ones that are there are linked": {all, Published, byPublished, true, "the published plugins"},
		"one block of a VM tells": {
			all, Auto, fmt.Sprintf(machine, `{"__defaults": ["cache"], "size": 8}`), true, "the published plugins",
		},
		"and that none was bridged": {all, Auto, fmt.Sprintf(machine, `{"size": 8}`), false, "the lab's stand-ins"},
		"published ones must be there": {
			none, Published, nothing, false, "\n  pulumi plugin install resource command v1.2.1\n",
		},
		"published ones have to stay there": {
			none, Auto, byPublished, false, "the published plugins are not installed",
		},
		"stand-ins do not continue with their state": {
			all, StandIn, byPublished, false,
			"the published plugins made this stack, and only they can read its state: destroy it with --providers=published",
		},
		"published ones do not continue with stand-ins": {
			all, Published, byStandIns, false, "the lab's stand-ins made this stack",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PULUMI_HOME", test.home)

			var output bytes.Buffer

			e := &Engine{o: Options{Dir: home, Stack: "lab", Providers: test.choice, Err: &output, StandIns: filepath.Join(all, "stand-ins")}}
			env := map[string]string{}
			state := fmt.Sprintf(`{"version": 4, "checkpoint": {"latest": {"resources": [%s]}}}`, test.state)

			require.NoError(t, os.MkdirAll(filepath.Dir(e.statePath()), 0o700))
			require.NoError(t, os.WriteFile(e.statePath(), []byte(state), 0o600))

			if err := e.chooseProviders(); err != nil {
				require.ErrorContains(t, err, test.message)
				assert.Empty(t, output.String())

				return
			}

			require.NoError(t, e.installProviders(env))
			assert.Contains(t, output.String(), test.message)

			b, err := os.ReadFile(filepath.Join(home, homeFolder, "plugins", "resource-talos-v0.7.1", "pulumi-resource-talos"))
			require.NoError(t, err)
			assert.Equal(t, map[bool]string{true: "talos", false: "stand-ins"}[test.published], string(b))
		})
	}
}

//nolint:paralleltest // the environment is the process's
func TestTheUsersOwnAuthoritiesStayTrusted(t *testing.T) {
	dir := t.TempDir()
	own, ca := filepath.Join(dir, "own.pem"), filepath.Join(dir, "ca.pem")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, workFolder), 0o700))
	require.NoError(t, os.WriteFile(own, []byte("theirs"), 0o600))
	require.NoError(t, os.WriteFile(ca, []byte("the lab's"), 0o600))

	e := &Engine{o: Options{Dir: dir, CA: ca}}

	t.Setenv(trustVariable, "")

	path, err := e.trust()
	require.NoError(t, err)
	requireFile(t, "\nthe lab's\n", path)

	t.Setenv(trustVariable, own)

	path, err = e.trust()
	require.NoError(t, err)
	requireFile(t, "theirs\nthe lab's\n", path)

	t.Setenv(trustVariable, path) // as commands about stack lab have it

	path, err = e.trust()
	require.NoError(t, err)
	requireFile(t, "theirs\nthe lab's\n", path)
}

func requireFile(t *testing.T, want, path string) {
	t.Helper()

	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, want, string(content))
}
