// Package sdktest generates the SDKs of the served components, as `pulumi package add` and `pulumi package gen-sdk` do,
// and compiles them.
package sdktest

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	golang "github.com/pulumi/pulumi/pkg/v3/codegen/go"
	"github.com/pulumi/pulumi/pkg/v3/codegen/nodejs"
	"github.com/pulumi/pulumi/pkg/v3/codegen/python"
	"github.com/pulumi/pulumi/pkg/v3/codegen/schema"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// project is the repository's root, and schemaFile the schema that the plugin serves.
const (
	project    = "../.."
	schemaFile = "cmd/pulumi-resource-talos-proxmox/schema.json"
)

// npm allows tests to install packages from npm's registry.
var npm = flag.Bool("npm", false, "run tests that install packages from npm's registry")

// references would load the schemas of other packages. The served components refer to none.
type references struct{ schema.ReferenceLoader }

// generate writes the SDK of a language as Pulumi's language host does for `pulumi package add`.
func generate(t *testing.T, language, folder string) {
	t.Helper()

	text, err := os.ReadFile(filepath.Join(project, schemaFile))
	require.NoError(t, err)

	var spec schema.PackageSpec
	require.NoError(t, json.Unmarshal(text, &spec))

	spec.Meta = &schema.MetadataSpec{SupportPack: true}

	p, problems, err := schema.BindSpec(spec, references{}, schema.ValidationOptions{})
	require.NoError(t, err)
	require.Empty(t, problems, "warnings of the schema")

	var files map[string][]byte

	switch language {
	case "go":
		files, err = golang.GeneratePackage("sdktest", p, nil)
	case "nodejs":
		files, err = nodejs.GeneratePackage("sdktest", p, nil, nil, true, references{})
	case "python":
		files, err = python.GeneratePackage("sdktest", p, nil, references{})
	}

	require.NoError(t, err)
	require.Greater(t, len(files), len(spec.Resources), "every component has a file")

	for name, text := range files {
		path := filepath.Join(folder, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, text, 0o600))
	}
}

// run runs a command in a folder and returns its output.
func run(t *testing.T, folder string, command ...string) string {
	t.Helper()

	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Dir = folder

	var problems strings.Builder

	cmd.Stderr = &problems
	printed, err := cmd.Output()
	require.NoError(t, err, "%s: %s%s", cmd, printed, &problems)

	return string(printed)
}

// TestGo compiles the SDK for Go with the program's own versions of modules.
//
//nolint:paralleltest // the environment is the process's
func TestGo(t *testing.T) {
	t.Setenv("GOFLAGS", "-mod=mod")

	folder := t.TempDir()
	generate(t, "go", folder)

	const module = "talos-proxmox/sdk/go"

	own, err := os.ReadFile(filepath.Join(folder, "go.mod"))
	require.NoError(t, err)
	assert.Contains(t, string(own), "module "+module+"\n", "programs find it under this path")

	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(project, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), text, 0o600))
	}

	run(t, folder, "go", "mod", "edit", "-module", module)
	run(t, folder, "go", "build", "./...")
}

// TestPython compiles the SDK for Python if Python is installed, which finds syntax errors.
func TestPython(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()
	generate(t, "python", folder)

	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("the SDK is generated, but not compiled: python3 is not installed")
	}

	run(t, folder, "python3", "-m", "compileall", "-q", ".")
}

// TestTypeScript compiles the SDK and examples/typescript, and runs the example with a mocked engine.
func TestTypeScript(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()
	copyFiles(t, filepath.Join(project, "examples/typescript"), folder)
	generate(t, "nodejs", filepath.Join(folder, "sdks/talos-proxmox"))

	if !*npm {
		t.Skip("the SDK is generated, but not compiled: `make test-slow` does so, with packages from npm's registry")
	}

	run(t, folder, "npm", "ci", "--no-audit", "--no-fund") // compiles the SDK as well
	run(t, folder, "npx", "--no-install", "tsc", "--project", ".")

	script, err := filepath.Abs("testdata/registers.js")
	require.NoError(t, err)

	var registered []struct {
		Type, Name string
		Inputs     map[string]any
	}
	require.NoError(t, json.Unmarshal([]byte(run(t, folder, "node", script, folder)), &registered))
	require.Len(t, registered, 3)

	image, template, cluster := registered[0], registered[1], registered[2]
	assert.Equal(t, "talos-proxmox:image:TalosImage talos", image.Type+" "+image.Name)
	assert.Equal(t, "talos-proxmox:template:GoldenTemplate talos-template", template.Type+" "+template.Name)
	assert.Equal(t, "local:import/talos.raw", template.Inputs["image"], "an output of the image")
	assert.Equal(t, "talos-proxmox:cluster:TalosCluster two", cluster.Type+" "+cluster.Name)

	nodes := cluster.Inputs["nodes"].([]any)
	require.Len(t, nodes, 2)

	machine := nodes[1].(map[string]any)["machine"].(map[string]any)
	assert.Equal(t, map[string]any{
		"host": "pve1", "vmid": 3000.0, "mac": "02:00:00:00:0b:00", "template": 901.0, // an output of the template
	}, machine)
}

// copyFiles copies the files of a folder, without the folders that npm and Pulumi create.
func copyFiles(t *testing.T, from, to string) {
	t.Helper()

	entries, err := os.ReadDir(from)
	require.NoError(t, err)

	for _, entry := range entries {
		if entry.Type().IsRegular() {
			text, err := os.ReadFile(filepath.Join(from, entry.Name()))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(to, entry.Name()), text, 0o600))
		}
	}
}
