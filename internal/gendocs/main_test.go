package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
)

const root = "../.."

func TestGeneratedFiles(t *testing.T) {
	t.Parallel()

	files, err := generate(root)
	require.NoError(t, err)

	for _, f := range files {
		stored, err := os.ReadFile(filepath.Join(root, f.path))
		require.NoError(t, err, "make schema writes it")
		assert.Equal(t, string(f.content), string(stored), "%s is stale: make schema", f.path)
	}

	schema, err := validator.CompileString("stack.schema.json", string(files[0].content))
	require.NoError(t, err)

	stacks, err := filepath.Glob(root + "/Pulumi.*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, stacks)

	for _, path := range stacks {
		require.NoError(t, schema.Validate(read(t, path)), path)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.True(
			t, strings.HasPrefix(string(text), "# yaml-language-server: $schema="+schemaPath+"\n"),
			"%s does not name the schema", path,
		)
	}

	plans, err := filepath.Glob(root + "/" + specFolder + "/testdata/plans/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, plans)

	for _, path := range plans {
		require.NoError(t, schema.Validate(stackOf(read(t, path))), path)
	}
}

func TestSchemaValidatesStackFiles(t *testing.T) {
	t.Parallel()

	schema, err := stackSchema(root)
	require.NoError(t, err)
	encoded, err := encode(schema)
	require.NoError(t, err)
	compiled, err := validator.CompileString("stack.schema.json", string(encoded))
	require.NoError(t, err)

	for name, c := range map[string]struct {
		change func(config map[string]any)
		fails  string // part of the error; empty = valid
	}{
		"other namespaces are free": {func(c map[string]any) { c["proxmoxve:tmpDir"] = "/tmp" }, ""},
		"an endpoint":               {func(c map[string]any) { c["proxmoxve:endpoint"] = "https://10.0.0.2:8006/" }, ""},
		"an endpoint without TLS":   {func(c map[string]any) { c["proxmoxve:endpoint"] = "10.0.0.2" }, "proxmoxve:endpoint"},
		"a token is encrypted": {
			func(c map[string]any) { c["proxmoxve:apiToken"] = map[string]any{"secure": "v1:x"} }, "",
		},
		"a token is a number": {func(c map[string]any) { c["proxmoxve:apiToken"] = 1 }, "proxmoxve:apiToken"},
		"any certificate":     {func(c map[string]any) { c["proxmoxve:insecure"] = true }, ""},
		"your own Factory": {
			func(c map[string]any) { c["talos:imageFactoryUrl"] = "https://factory.example.org" }, "",
		},
		"a Factory that is not a URL": {
			func(c map[string]any) { c["talos:imageFactoryUrl"] = "factory" }, "talos:imageFactoryUrl",
		},
		"a Talos version without v": {
			func(c map[string]any) {
				c["talos-proxmox:templates"].(map[string]any)["talos"].(map[string]any)["version"] = "1.12.6"
			}, "version",
		},
		"a Kubernetes version that is not whole": {
			func(c map[string]any) { cluster(c)["kubernetesVersion"] = "v1.35" }, "kubernetesVersion",
		},
		"the SSH key is a secret": {
			func(c map[string]any) { c["talos-proxmox:sshPrivateKey"] = map[string]any{"secure": "v1:x"} }, "",
		},
		"a patch can be a secret": {
			func(c map[string]any) { cluster(c)["patches"] = []any{map[string]any{"secure": "v1:x"}, "machine: {}"} }, "",
		},
		"a kernel argument can be a secret": {
			func(c map[string]any) {
				class := c["talos-proxmox:templates"].(map[string]any)["talos"].(map[string]any)
				class["kernelArgs"] = []any{map[string]any{"secure": "v1:x"}}
			}, "",
		},
		"labels and taints can be secrets": {
			func(c map[string]any) {
				secret := map[string]any{"secure": "v1:x"}
				cluster(c)["controlPlane"] = map[string]any{"labels": map[string]any{"a": secret}, "taints": []any{secret}}
			}, "",
		},
		"a name cannot be a secret": {
			func(c map[string]any) { cluster(c)["name"] = map[string]any{"secure": "v1:x"} }, "name",
		},
		"a top-level key is unknown": {
			func(c map[string]any) { c["talos-proxmox:host"] = []any{} }, "talos-proxmox:host",
		},
		"a top-level key is missing": {
			func(c map[string]any) { delete(c, "talos-proxmox:hosts") }, "talos-proxmox:hosts",
		},
		"a key of a cluster is unknown": {func(c map[string]any) { cluster(c)["worker"] = []any{} }, "worker"},
		"a host's cache has a fraction": {
			func(c map[string]any) { host(c)["prep"] = map[string]any{"zfsArcMaxGiB": 9.6} }, "",
		},
		"a GPU worker has no GPU": {
			func(c map[string]any) { cluster(c)["gpuWorkers"] = []any{map[string]any{"name": "gpu"}} }, "gpu",
		},
		"a control plane takes a pool's keys": {
			func(c map[string]any) { cluster(c)["controlPlane"] = map[string]any{"memoryMiB": 8192, "cores": 4} }, "",
		},
		"a control plane has no name": {
			func(c map[string]any) { cluster(c)["controlPlane"] = map[string]any{"name": "x"} }, "name",
		},
		"a number is a text": {
			func(c map[string]any) { cluster(c)["controlPlane"] = map[string]any{"cores": "4"} }, "cores",
		},
		"a number is too small": {
			func(c map[string]any) { cluster(c)["controlPlane"] = map[string]any{"cores": 0} }, "cores",
		},
		"a choice is unknown":      {func(c map[string]any) { cluster(c)["clone"] = "half" }, "clone"},
		"a cluster has no network": {func(c map[string]any) { delete(cluster(c), "network") }, "network"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stack := stackOf(read(t, root+"/"+specFolder+"/testdata/base.yaml"))
			c.change(stack.(map[string]any)["config"].(map[string]any))

			err := compiled.Validate(stack)
			if c.fails == "" {
				require.NoError(t, err)

				return
			}

			require.ErrorContains(t, err, c.fails)
		})
	}
}

func TestReferenceNeedsATableForEachType(t *testing.T) {
	t.Parallel()

	schema, err := stackSchema(root)
	require.NoError(t, err)
	_, err = fillTables([]byte("# Nothing\n<!-- keys of NoType, written by make schema -->\n<!-- end -->\n"), schema)
	require.ErrorContains(t, err, "differ in APIServerConfig, ")
	require.ErrorContains(t, err, "NoType")
}

func TestFillChanges(t *testing.T) {
	t.Parallel()

	page, err := os.ReadFile(filepath.Join(root, changingPath))
	require.NoError(t, err)
	schema, err := stackSchema(root)
	require.NoError(t, err)

	// Computed effects replace those in the page; notes stay.
	wrong := strings.NewReplacer(
		"| `memoryMiB` | restart |", "| `memoryMiB` | in place |", "less: **refused** |", "less: in place: not so |",
		"| `podCidr` | **refused** |", "| `podCidr` |  |",
		"| `sizeGiB` | more: in place<br>less: **refused** |", "| `sizeGiB` |  |",
	).Replace(string(page))
	require.NotEqual(t, string(page), wrong)

	filled, err := fillChanges([]byte(wrong), schema)
	require.NoError(t, err)

	for _, row := range []string{
		"| `memoryMiB` | restart |", "| `diskGiB` | more: in place<br>less: **refused**: not so |", "| `clone` | no effect |",
		"| `tags` | in place |", "| `sizeGiB` | more: in place<br>less: **refused** |",
		"| `firstVmid` | **replaced, with its data**: ", "| `podCidr` | **refused** |",
	} {
		assert.Contains(t, string(filled), row)
	}

	schema.Definitions["NICConfig"].Properties.Set("queues", &jsonschema.Schema{})
	_, err = fillChanges(page, schema)
	require.ErrorContains(t, err, "NICConfig.queues: no row says what a change of it does")

	base, err := newBaseline()
	require.NoError(t, err)
	_, err = base.verdict(poolPath+"hosts", change{to: []any{"pve2"}})
	require.ErrorContains(t, err, "has no effect: remove it")
}

func TestEveryKeyIsExplained(t *testing.T) {
	t.Parallel()

	schema, err := stackSchema(root)
	require.NoError(t, err)

	config, ok := schema.Properties.Get("config")
	require.True(t, ok)

	for pair := config.Properties.Oldest(); pair != nil; pair = pair.Next() {
		assert.NotEmpty(t, pair.Value.Description, pair.Key)
	}

	for name, definition := range schema.Definitions {
		assert.NotEmpty(t, definition.Description, name)

		for pair := definition.Properties.Oldest(); pair != nil; pair = pair.Next() {
			assert.NotEmpty(t, pair.Value.Description, "%s.%s", name, pair.Key)
		}
	}
}

// read returns a YAML file as decoded JSON.
func read(t *testing.T, path string) any {
	t.Helper()

	text, err := os.ReadFile(path)
	require.NoError(t, err)

	var value any
	require.NoError(t, yaml.Unmarshal(text, &value))
	encoded, err := json.Marshal(value)
	require.NoError(t, err)

	value = nil
	require.NoError(t, json.Unmarshal(encoded, &value))

	return value
}

// stackOf returns a stack file with the top-level keys of test data.
func stackOf(values any) any {
	config := map[string]any{}
	for key, value := range values.(map[string]any) {
		config[namespace+key] = value
	}

	return map[string]any{"config": config}
}

func host(config map[string]any) map[string]any {
	return config[namespace+"hosts"].([]any)[0].(map[string]any)
}

func cluster(config map[string]any) map[string]any {
	return config[namespace+"clusters"].([]any)[0].(map[string]any)
}
