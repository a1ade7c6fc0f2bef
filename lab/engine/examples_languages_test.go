package engine_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/engine"
)

// TestExamplesInOtherLanguages runs examples/typescript and examples/yaml as their users do, with the Pulumi CLI, its
// language hosts and the plugin: each brings up a cluster, runs again without changes and destroys it.
func TestExamplesInOtherLanguages(t *testing.T) {
	t.Parallel()

	for example, language := range map[string]string{"typescript": "nodejs", "yaml": "yaml"} {
		t.Run(example, func(t *testing.T) {
			if _, err := exec.LookPath("pulumi-language-" + language); err != nil {
				t.Skipf("needs pulumi-language-%s on PATH: the release of the Pulumi CLI has it", language)
			}

			t.Parallel()

			w := newWorld(t, testSpeed)
			w.installPlugin()

			project := "two-nodes-" + example
			w.configure = func(c *engine.Config) { w.configureExample(c, project) }

			e := w.engine(programStack) // for the stack's configuration, and the providers
			t.Cleanup(e.Close)

			folder := w.copyExample(example)
			pulumi := func(command ...string) string {
				output, err := w.runIn(e, folder, append(command, "--color=never")...)
				require.NoError(t, err, "%s: %s", command, output)

				return output
			}

			pulumi("package", "add", toolPath(pluginName))
			pulumi("stack", "init", w.options.Stack)

			file := filepath.Join(w.dir, "work", "Pulumi."+w.options.Stack+".yaml")
			run := func(command ...string) string {
				return pulumi(append(command, "--yes", "--skip-preview", "--config-file", file)...)
			}

			assert.Contains(t, run("up"), "talos-proxmox:cluster:TalosCluster two creating")
			assert.Equal(t, map[string]int{"two-cp-1": 2000, "two-worker-1": 3000}, w.machines())
			w.requireRunning(2)
			assert.Contains(t, pulumi("stack", "output", "kubeconfig", "--show-secrets"), "client-key-data")

			run("up", "--expect-no-changes")
			run("destroy")
			w.requireEmpty()
		})
	}
}

// configureExample sets what an example's Pulumi.yaml lists.
func (w *world) configureExample(c *engine.Config, project string) {
	connection, err := w.lab.Connection()
	require.NoError(w.t, err)

	host := connection.Hosts[0]

	for key, value := range map[string]string{
		"node": host.Name, "host": host.Address, "port": strconv.Itoa(host.Port), "hostKey": host.HostKey,
		"network": w.network + ".1.0/24", "gateway": w.network + ".1.1",
		"controlPlane": w.network + ".1.10/24", "worker": w.network + ".1.20/24",
	} {
		c.Values[project+":"+key] = value
	}

	c.Secrets[project+":privateKey"] = connection.PrivateKey
}

// copyExample copies an example without the files that npm and Pulumi write, and without its package: `pulumi install`
// builds that from its sources, and needs the released providers for it.
func (w *world) copyExample(name string) string {
	w.t.Helper()

	from, folder := filepath.Join(project, "examples", name), w.t.TempDir()
	entries, err := os.ReadDir(from)
	require.NoError(w.t, err)

	for _, entry := range entries {
		if !entry.Type().IsRegular() {
			continue
		}

		text, err := os.ReadFile(filepath.Join(from, entry.Name()))
		require.NoError(w.t, err)

		text = packagesBlock.ReplaceAll(text, nil)
		require.NoError(w.t, os.WriteFile(filepath.Join(folder, entry.Name()), text, 0o600))
	}

	return folder
}

// packagesBlock matches the packages in a Pulumi.yaml.
var packagesBlock = regexp.MustCompile(`(?m)^packages:.*\n(  .*\n)+`)
