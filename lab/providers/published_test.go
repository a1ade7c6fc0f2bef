package providers_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/modfile"

	"talos-proxmox/lab/providers"
)

func TestPluginsHaveTheVersionsOfTheProgramsSDKs(t *testing.T) {
	t.Parallel()

	const path = "../../go.mod"

	b, err := os.ReadFile(path)
	require.NoError(t, err)

	file, err := modfile.Parse(path, b, nil)
	require.NoError(t, err)

	versions := map[string]string{}
	for _, required := range file.Require {
		versions[required.Mod.Path] = required.Mod.Version
	}

	found := map[string]string{}
	for _, plugin := range providers.Plugins() {
		found[plugin.Name] = "v" + plugin.Version
	}

	assert.Equal(t, map[string]string{
		"proxmoxve": versions["github.com/muhlba91/pulumi-proxmoxve/sdk/v6"],
		"talos":     versions["github.com/pulumiverse/pulumi-talos/sdk"],
		"command":   versions["github.com/pulumi/pulumi-command/sdk"],
	}, found)
}

//nolint:paralleltest // the environment is the process's
func TestMissing(t *testing.T) {
	home := t.TempDir()
	t.Setenv("PULUMI_HOME", home)
	assert.Equal(t, "proxmoxve 6.18.1, talos 0.7.1, command 1.2.1", providers.List(providers.Missing()))

	for _, folder := range []string{"resource-proxmoxve-v6.18.1", "resource-command-v1.2.1", "resource-talos-v0.8.1"} {
		require.NoError(t, os.MkdirAll(filepath.Join(home, "plugins", folder), 0o700))
	}

	missing := providers.Missing()
	require.Equal(t, "talos 0.7.1", providers.List(missing), "another version does not count")
	assert.Equal(
		t, "plugin install resource talos v0.7.1 --server github://api.github.com/pulumiverse",
		strings.Join(missing[0].InstallArguments(), " "),
	)

	folder, err := missing[0].Folder()
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(home, "plugins", "resource-talos-v0.7.1"), folder)
}
