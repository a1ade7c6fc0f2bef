package stacks

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"talos-proxmox/components"
	"talos-proxmox/internal/enginetest"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/tokens"
)

// stackOptions returns the options of a stack that the project is delivered with. The stack files in the project's
// folder are the user's to edit.
func stackOptions(t *testing.T, stack string, more map[string]string) enginetest.Options {
	t.Helper()

	data, err := os.ReadFile("testdata/Pulumi." + stack + ".yaml")
	require.NoError(t, err)
	o := stackOptionsOf(t, stack, string(data))
	maps.Copy(o.Config, more)

	return o
}

// stackOptionsOf returns a stack file as the engine passes it to the program, with a connection to Proxmox: objects as
// JSON, texts as they are.
func stackOptionsOf(t *testing.T, stack, document string) enginetest.Options {
	t.Helper()

	var file struct {
		Config map[string]any `yaml:"config"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(document), &file))
	root := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(root, "Pulumi."+stack+".yaml"), []byte(document), 0o600))

	o := enginetest.Options{
		Stack: stack,
		Root:  root,
		Config: map[string]string{
			"proxmoxve:endpoint": "https://127.1.0.11:8006/", "proxmoxve:apiToken": "talos@pve!pulumi=uuid",
		},
	}
	for key, value := range file.Config {
		text, err := engineValue(value)
		require.NoError(t, err)

		o.Config[key] = text
	}

	return o
}

// labHostKeys returns what the lab adds to its stack: the keys of its hosts' shells.
func labHostKeys(t *testing.T) map[string]string {
	t.Helper()

	var hosts []map[string]any
	require.NoError(t, json.Unmarshal([]byte(stackOptions(t, "lab", nil).Config["talos-proxmox:hosts"]), &hosts))

	for _, host := range hosts {
		host["ssh"] = map[string]any{"port": 2222, "acceptAnyHostKey": true}
	}

	text, err := engineValue(hosts)
	require.NoError(t, err)

	return map[string]string{"talos-proxmox:hosts": text}
}

// mustDeploy runs the program with options.
func mustDeploy(t *testing.T, o enginetest.Options) *enginetest.Recorder {
	t.Helper()

	r, err := enginetest.Run(o, deploy)
	require.NoError(t, err)

	return r
}

func TestCommittedStackFilesHoldNoPlainSecretsAndNameTheirSchema(t *testing.T) {
	t.Parallel()

	for _, stack := range []string{"dev", "prod", "lab"} {
		data, err := os.ReadFile("testdata/Pulumi." + stack + ".yaml")
		require.NoError(t, err)

		first, _, _ := strings.Cut(string(data), "\n")
		assert.Equal(t, "# yaml-language-server: $schema=docs/schema/stack.schema.json", first)

		var file struct {
			Config map[string]any `yaml:"config"`
		}
		require.NoError(t, yaml.Unmarshal(data, &file))

		for _, key := range []string{"proxmoxve:apiToken", "proxmoxve:password", "talos-proxmox:sshPrivateKey"} {
			if value, exists := file.Config[key]; exists {
				assert.Contains(t, value, "secure", "%s of stack %s is in plain text", key, stack)
			}
		}
	}
}

// at returns the value under keys of nested maps.
func at(value resource.PropertyValue, keys ...resource.PropertyKey) any {
	for _, key := range keys {
		if value.IsSecret() {
			value = value.SecretValue().Element
		}

		value = value.ObjectValue()[key]
	}

	return value.V
}

const twoClusters = `config:
  talos-proxmox:hosts:
    - {name: pve1, address: 127.1.0.11, ssh: {acceptAnyHostKey: true}}
  talos-proxmox:templates:
    talos: {version: v1.12.6}
    storage: {version: v1.12.6, firstVmid: 950, diskGiB: 30}
    plain: {version: v1.12.6, extensions: [iscsi-tools], source: iso}
  talos-proxmox:clusters:
    - name: one
      network: {cidr: 127.1.1.0/24, gateway: 127.1.1.1}
      controlPlane: {count: 1}
      workers: [{name: storage, template: storage, count: 1}]
    - name: two
      network: {cidr: 127.1.2.0/24, gateway: 127.1.2.1}
      controlPlane: {count: 1, firstVmid: 2100, template: plain}
`

func TestClassesShareTheSameImage(t *testing.T) {
	t.Parallel()
	r := mustDeploy(t, stackOptionsOf(t, "test", twoClusters))

	other := talos.Schematic{Extensions: []string{"iscsi-tools"}}.ID()[:12]
	assert.ElementsMatch(
		t,
		[]string{
			"talos-v1.12.6-376567988ad3-nocloud-amd64.img-pve1-local",
			"talos-v1.12.6-" + other + "-nocloud-amd64.iso-pve1-local",
		},
		r.Names(tokens.File),
	)
	assert.Equal(t, []string{"plain-pve1", "storage-pve1", "talos-pve1"}, r.Names(components.GoldenTemplateType))
	assert.Equal(t, []string{"storage-pve1-build", "talos-pve1-build"}, r.Names(tokens.RemoteCommand))
	assert.Equal(t, []string{"one", "two"}, r.Names(components.TalosClusterType))
	assert.Equal(t, []string{"storage-pve1-build"}, r.ByType(tokens.VirtualMachine)["one-storage-1-vm"].DependsOn())

	for _, name := range []resource.PropertyKey{"one", "two"} {
		assert.NotEmpty(t, at(r.Exports()[Kubeconfigs], name))
	}
}

func TestSecondClusterDoesNotAffectTheFirst(t *testing.T) {
	t.Parallel()

	var document map[string]map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(twoClusters), &document))
	document["config"]["talos-proxmox:clusters"] = document["config"]["talos-proxmox:clusters"].([]any)[:1]
	one, err := yaml.Marshal(document)
	require.NoError(t, err)
	before := mustDeploy(t, stackOptionsOf(t, "test", string(one)))
	after := mustDeploy(t, stackOptionsOf(t, "test", twoClusters))

	for _, registration := range before.All() {
		if registration.Name == tokens.MachineGuard { // of all machines
			continue
		}

		other := after.ByType(registration.Type)[registration.Name]
		assert.True(t, registration.Inputs.DeepEquals(other.Inputs), registration.Name)
		assert.Equal(t, registration.DependsOn(), other.DependsOn(), registration.Name)
	}
}

// appliedConfigurations returns the requests that give nodes their configurations, by node.
func appliedConfigurations(t *testing.T, r *enginetest.Recorder) map[string]request.Apply {
	t.Helper()

	applied := map[string]request.Apply{}

	for name, command := range r.ByType(tokens.LocalCommand) {
		if node, found := strings.CutSuffix(name, tokens.OfConfiguration); found {
			applied[node] = enginetest.RequestOf[request.Apply](t, command)
		}
	}

	return applied
}

func TestImageFactoryURLIsUsedEverywhere(t *testing.T) {
	t.Parallel()
	o := stackOptionsOf(t, "test", twoClusters)
	o.Config["talos:imageFactoryUrl"] = "http://127.1.0.9:8080"
	r := mustDeploy(t, o)

	for name, file := range r.ByType(tokens.File) {
		assert.True(t, strings.HasPrefix(file.Input("url").StringValue(), "http://127.1.0.9:8080/image/"), name)
	}

	applied := appliedConfigurations(t, r)
	require.Len(t, applied, 3)

	for node, req := range applied {
		assert.Contains(t, req.Configuration, "127.1.0.9:8080/nocloud-installer/", node)
	}
}

func TestSSHPrivateKeyIsSecret(t *testing.T) {
	t.Parallel()
	o := stackOptionsOf(t, "test", twoClusters)
	o.Config["talos-proxmox:sshPrivateKey"] = "the-private-key"
	o.Secrets = []string{"talos-proxmox:sshPrivateKey"}
	r := mustDeploy(t, o)

	for name, command := range r.ByType(tokens.RemoteCommand) {
		require.True(t, command.Input("connection").IsSecret(), name)
		assert.Equal(
			t, "the-private-key", command.Input("connection").SecretValue().Element.ObjectValue()["privateKey"].StringValue(),
			name,
		)
	}
}

func TestPlanWarningsAreLogged(t *testing.T) {
	t.Parallel()

	document := strings.Replace(twoClusters, "ssh: {", "capacity: {cores: 4}, ssh: {", 1)
	r := mustDeploy(t, stackOptionsOf(t, "test", document))

	assert.Contains(
		t, strings.Join(r.Warnings(), "\n"), "hosts[0].capacity.cores: 6 cores are planned on pve1, which has 4",
	)
}

func TestRawPassthroughNeedsAPassword(t *testing.T) {
	t.Parallel()

	raw := strings.Replace(
		twoClusters, "ssh: {acceptAnyHostKey: true}",
		"ssh: {acceptAnyHostKey: true}, gpus: [{name: p4, pci: '01:00', generation: pascal, passthrough: raw}]", 1,
	)

	for name, test := range map[string]struct {
		settings map[string]string
		fails    bool
	}{
		"root with a password": {map[string]string{"username": "root@pam", "password": "hidden"}, false},
		"root's token":         {map[string]string{"apiToken": "root@pam!pulumi=uuid"}, true},
		"a token beside root's password": {
			map[string]string{"username": "root@pam", "password": "hidden", "apiToken": "root@pam!pulumi=uuid"}, true,
		},
		"another administrator with a password": {map[string]string{"username": "admin@pve", "password": "hidden"}, true},
		"no credentials in the configuration":   {nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := stackOptionsOf(t, "test", raw)
			delete(o.Config, "proxmoxve:apiToken")

			for key, value := range test.settings {
				o.Config["proxmoxve:"+key] = value
			}

			_, err := enginetest.Run(o, deploy)
			if !test.fails {
				require.NoError(t, err)

				return
			}

			require.ErrorContains(t, err, `hosts[0].gpus[0].passthrough: "raw" cannot be used: only root@pam may do that in Proxmox, logged in with a password (proxmoxve:username and `+
				"proxmoxve:password, without proxmoxve:apiToken), and this stack logs in otherwise; set passthrough: mapping, or log in so")
			assert.NotContains(t, err.Error(), "hidden")
		})
	}
}

// TestPatchesThatMachinesWouldRefuse: a machine refuses a whole configuration, for which each patch alone is valid.
func TestPatchesThatMachinesWouldRefuse(t *testing.T) {
	t.Parallel()

	document := strings.NewReplacer(
		"controlPlane: {count: 1}\n", `patches: ["machine: {sysctls: {a.b: \"1\"}}", "machine: {features: {stableHostname: true}}"]
      controlPlane: {count: 1, patches: ["machine: {network: {interfaces: [{interface: eth9, addresses: [nine]}]}}"]}
`,
		"controlPlane: {count: 1, firstVmid: 2100, template: plain}",
		`controlPlane: {count: 1, firstVmid: 2100, template: plain, patches: ["machine: {sysctls: {a.b: \"1\"}}"], nodes:
        {two-cp-1: {patches: ["{apiVersion: v1alpha1, kind: ResolverConfig, nameservers: [{address: 10.0.0.1}]}"]}}}`,
		"gateway: 127.1.2.1}", "gateway: 127.1.2.1, dns: [127.1.2.1]}",
	).Replace(twoClusters)

	r, err := enginetest.Run(stackOptionsOf(t, "test", document), deploy)
	require.ErrorContains(t, err, `the configuration of stack "test" has problems, nothing was changed:
Pulumi.test.yaml:11: clusters[0].patches[1]: makes the machine configuration of one-cp-1 invalid; correct or remove it: stable hostname is already set in v1alpha1 config
Pulumi.test.yaml:12: clusters[0].controlPlane.patches[0]: makes the machine configuration of one-cp-1 invalid; correct or remove it: v1alpha1.Config: [networking.os.device.addresses] "eth9": failed to parse IP address "nine"
Pulumi.test.yaml:17: clusters[1].controlPlane.nodes.two-cp-1.patches[0]: makes the machine configuration of two-cp-1 invalid; correct or remove it: .machine.network.nameservers is already set in v1alpha1 config; write ResolverConfig as machine.network.nameservers, which the cluster's contract has
`)
	assert.Equal(t, []string{"record"}, r.Names(tokens.Record))
	assert.Len(t, r.All(), 1, "only the record of the run is registered")
}

func TestInvalidConfigurationRegistersNothing(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		replace, with string
		key, value    string
		want          []string
	}{
		"every problem is reported at once": {
			replace: "cidr: 127.1.2.0/24, gateway: 127.1.2.1", with: "cidr: 127.1.2.0/24, gateway: 127.9.9.9, bogus: 1",
			key: "talos-proxmox:protect", value: "maybe",
			want: []string{
				"the configuration of stack \"test\" has problems, nothing was changed:", "clusters[1].network.gateway", "bogus",
				"protect",
			},
		},
		"a key that nothing reads": {
			replace: "talos-proxmox:hosts:", with: "talos-proxmox:clutsers: []\n  talos-proxmox:hosts:",
			want: []string{"clutsers: is not a key of the configuration; did you mean clusters?"},
		},
		"a key that nothing reads, without its namespace": {
			replace: "talos-proxmox:hosts:",
			with:    "host: []\n  talos-proxmox:hosts:",
			want:    []string{"host: is not a key of the configuration"},
		},
		"a private key in plain text": {
			key:   "talos-proxmox:sshPrivateKey",
			value: "the-private-key",
			want:  []string{"sshPrivateKey: is stored in plain text; store it encrypted: pulumi config set --secret"},
		},
		"two checksums of one image": {
			replace: "talos: {version: v1.12.6}\n    storage: {",
			with: "talos: {version: v1.12.6, checksum: " + strings.Repeat(
				"cd", 32,
			) + "}\n    storage: {checksum: " + strings.Repeat("ab", 32) + ", ",
			want: []string{"checksum: another class with the same image has another checksum"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			document := twoClusters
			if test.replace != "" {
				require.Contains(t, document, test.replace)
				document = strings.Replace(document, test.replace, test.with, 1)
			}

			o := stackOptionsOf(t, "test", document)
			if test.key != "" {
				o.Config[test.key] = test.value
			}

			r, err := enginetest.Run(o, deploy)

			for _, text := range test.want {
				require.ErrorContains(t, err, text)
			}

			assert.NotContains(t, err.Error(), "the-private-key")
			assert.Empty(t, r.All())
		})
	}
}
