package stacks

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"talos-proxmox/internal/enginetest"
	"talos-proxmox/internal/report"
	"talos-proxmox/internal/tokens"
)

// encryptedStack has each text that can be encrypted, encrypted by itself. It marks the secrets instead of using
// Pulumi's encryption.
const encryptedStack = `config:
  talos-proxmox:hosts:
    - {name: pve1, address: 127.1.0.11, ssh: {acceptAnyHostKey: true}}
  talos-proxmox:templates:
    talos: {version: v1.12.6, kernelArgs: [{secure: marker-argument}, net.ifnames=0]}
  talos-proxmox:clusters:
    - name: one
      kubernetesVersion: v1.35.0
      network: {cidr: 127.1.1.0/24, gateway: 127.1.1.1, ntp: [{secure: marker-server}]}
      controlPlane: {count: 1}
      workers:
        - name: general
          count: 2
          labels: {example.org/plain: visible-label, example.org/hidden: {secure: marker-label}}
          taints: [{secure: "marker-taint=a:NoSchedule"}]
          patches: [{secure: "machine: {sysctls: {a: marker-pool}}"}]
          nodes: {"1": {labels: {example.org/own: {secure: marker-own-label}}, patches: [{secure: "machine: {sysctls: {b: marker-node}}"}]}}
      patches:
        - "machine: {sysctls: {c: visible-patch}}"
        - {secure: "machine: {sysctls: {d: marker-cluster}}"}
`

// decryptedOptions returns a stack as the engine passes it to the program, with secrets decrypted, and its file with
// ciphertexts.
func decryptedOptions(t *testing.T, document string) enginetest.Options {
	t.Helper()

	var file struct {
		Config map[string]any `yaml:"config"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(document), &file))
	o := enginetest.Options{Stack: "test", Root: t.TempDir(), Config: map[string]string{}}
	file.Config["proxmoxve:endpoint"], file.Config["proxmoxve:apiToken"] = "https://127.1.0.11:8006/", "talos@pve!pulumi=uuid"
	stored := map[string]any{}

	for key, value := range file.Config {
		secret := false
		plain, kept := splitSecrets(value, &secret)

		text, err := engineValue(plain)
		require.NoError(t, err)

		o.Config[key], stored[key] = text, kept
		if secret {
			o.Secrets = append(o.Secrets, key)
		}
	}

	text, err := yaml.Marshal(map[string]any{"config": stored})
	require.NoError(t, err)
	require.NotContains(t, string(text), "marker")
	require.NoError(t, os.WriteFile(filepath.Join(o.Root, "Pulumi.test.yaml"), text, 0o600))

	return o
}

// splitSecrets returns a decrypted value and the value in the stack file.
func splitSecrets(value any, secret *bool) (plain, kept any) {
	switch value := value.(type) {
	case map[string]any:
		if text, ok := value["secure"]; ok {
			*secret = true

			return text, map[string]any{"secure": "v1:cipher"}
		}

		plain, kept := map[string]any{}, map[string]any{}
		for key, inner := range value {
			plain[key], kept[key] = splitSecrets(inner, secret)
		}

		return plain, kept
	case []any:
		var plain, kept []any

		for _, inner := range value {
			p, k := splitSecrets(inner, secret)
			plain, kept = append(plain, p), append(kept, k)
		}

		return plain, kept
	default:
		return value, value
	}
}

// encryptedMarkers are the secrets of encryptedStack.
var encryptedMarkers = []string{
	"marker-argument", "marker-server", "marker-label", "marker-taint", "marker-pool", "marker-own-label", "marker-node",
	"marker-cluster",
}

func requireNoPlainText(t *testing.T, r *enginetest.Recorder, texts ...string) {
	t.Helper()

	for place, value := range r.Everything() {
		plain, err := json.Marshal(enginetest.Plain(value).Mappable())
		require.NoError(t, err)

		for _, text := range texts {
			assert.False(t, strings.Contains(string(plain), text), "%s is in %s", text, place)
		}
	}
}

func TestEncryptedValuesStaySecret(t *testing.T) {
	t.Parallel()

	for name, change := range map[string]func(t *testing.T, o *enginetest.Options){
		"single texts": func(*testing.T, *enginetest.Options) {},
		"without the stack's file": func(t *testing.T, o *enginetest.Options) {
			t.Helper()
			o.Root = t.TempDir()
		},
		"whole keys": func(t *testing.T, o *enginetest.Options) {
			t.Helper()

			whole := "config:\n"
			for _, key := range o.Secrets {
				whole += "  " + key + ": {secure: v1:cipher}\n"
			}

			require.NoError(t, os.WriteFile(filepath.Join(o.Root, "Pulumi.test.yaml"), []byte(whole), 0o600))
		},
	} {
		for _, preview := range []bool{false, true} {
			t.Run(name+map[bool]string{false: ", up", true: ", preview"}[preview], func(t *testing.T) {
				t.Parallel()
				o := decryptedOptions(t, encryptedStack)
				o.Preview = preview
				change(t, &o)
				r := mustDeploy(t, o)

				requireNoPlainText(t, r, encryptedMarkers...)
				assert.Equal(
					t, "general", strings.Split(r.Names(tokens.VirtualMachine)[1], "-")[1], "names are names of resources",
				)

				if preview {
					return
				}

				configuration := appliedConfigurations(t, r)["one-general-1"].Configuration

				for _, marker := range []string{
					"marker-label", "marker-taint", "marker-pool", "marker-own-label", "marker-node", "marker-cluster",
				} {
					assert.Contains(t, configuration, marker, "it reaches the machine")
				}

				warned := strings.Contains(strings.Join(r.Warnings(), "\n"), "clusters: is stored encrypted as a whole")
				assert.Equal(t, name == "whole keys", warned)
			})
		}
	}
}

// TestImageIsSecretForAllItsClasses has two classes with the same image, of which one encrypts the kernel argument.
func TestImageIsSecretForAllItsClasses(t *testing.T) {
	t.Parallel()

	for name, arguments := range map[string][2]string{
		"the first": {"{secure: hidden=1}", "hidden=1"}, "the last": {"hidden=1", "{secure: hidden=1}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := decryptedOptions(t, strings.NewReplacer(
				"storage: {version: v1.12.6,", "storage: {version: v1.12.6, kernelArgs: ["+arguments[0]+"],",
				"talos: {version: v1.12.6}", "talos: {version: v1.12.6, kernelArgs: ["+arguments[1]+"]}",
			).Replace(twoClusters))
			r := mustDeploy(t, o)

			hidden := 0

			for _, schematic := range r.ByType(tokens.Schematic) {
				if schematic.Input("schematic").IsSecret() {
					hidden++
				}
			}

			assert.Len(t, r.ByType(tokens.Schematic), 2)
			assert.Equal(t, 1, hidden, "that of plain has no arguments")
		})
	}
}

// TestEncryptedPatchAffectsOnlyItsPool keeps previews readable: a patch of one pool does not hide other machines.
func TestEncryptedPatchAffectsOnlyItsPool(t *testing.T) {
	t.Parallel()
	o := decryptedOptions(
		t,
		strings.Replace(
			twoClusters, "workers: [{name: storage,",
			`workers: [{patches: [{secure: "machine: {sysctls: {a: marker-pool}}"}], name: storage,`, 1,
		),
	)
	r := mustDeploy(t, o)

	requireNoPlainText(t, r, "marker-pool")

	for node, req := range appliedConfigurations(t, r) {
		assert.Equal(t, node == "one-storage-1", strings.Contains(req.Configuration, "marker-pool"), node)
	}

	for _, name := range r.Names(tokens.VirtualMachine) {
		assert.False(t, resource.NewProperty(r.ByType(tokens.VirtualMachine)[name].Inputs).ContainsSecrets(), name)
	}
}

func TestProblemsAndReportsOfAnEncryptedStack(t *testing.T) {
	t.Parallel()
	o := decryptedOptions(
		t,
		strings.NewReplacer(
			"d: marker-cluster}}", "d: [marker-cluster}}", "marker-label", "marker-label!", "marker-taint=a", "marker-taint=a b",
		).Replace(encryptedStack),
	)
	_, err := enginetest.Run(o, deploy)
	require.ErrorContains(
		t, err, "clusters[0].patches[1]: is not a patch for Talos, and the reason is not shown for an encrypted one",
	)
	require.ErrorContains(
		t, err, `clusters[0].workers[0].labels["example.org/hidden"]: is not a value of Kubernetes labels`,
	)
	require.ErrorContains(t, err, "clusters[0].workers[0].taints[0]: is not a taint")
	assert.NotContains(t, err.Error(), "marker")

	o = decryptedOptions(t, encryptedStack)
	file, err := os.ReadFile(filepath.Join(o.Root, "Pulumi.test.yaml"))
	require.NoError(t, err)
	plan, err := PlanFile("test", file)
	require.NoError(t, err, "a report needs no secret")
	// as Pulumi writes it
	quoted := strings.Replace(string(file), "config:\n", "config:\n    talos-proxmox:protect: \"true\"\n", 1)
	protected, err := PlanFile("test", []byte(quoted))
	require.NoError(t, err)
	assert.True(t, protected.Protect)

	page, err := report.HTML(plan)
	require.NoError(t, err)

	for _, text := range []string{report.Markdown(plan, nil), string(page)} {
		assert.Contains(t, text, "one-general-2")
		assert.NotContains(t, text, "cipher")
	}

	shown := maps.Clone(o.Config)
	for key, text := range shown { // as the engine's events have them
		for _, marker := range slices.Backward(encryptedMarkers) {
			text = redactText(text, marker)
		}

		shown[key] = text
	}

	plan, err = PlanOfConfig("test", shown)
	require.NoError(t, err, "the comment on a pull request needs none either")
	assert.Len(t, plan.Clusters[0].Nodes(), 3)
}

// redactText replaces the JSON string that contains a text.
func redactText(document, text string) string {
	at := strings.Index(document, text)
	if at < 0 {
		return document
	}

	first := strings.LastIndex(document[:at], `"`)

	return document[:first] + `"[secret]` + document[at+strings.Index(document[at:], `"`):]
}

func TestPlainTextPasswordInAPatchIsReported(t *testing.T) {
	t.Parallel()

	const patch = "{machine: {registries: {config: {ghcr.io: {auth: {username: me, password: hunter2}}}}}}"

	for stated, want := range map[string]string{
		`"` + patch + `"`: "clusters[0].patches[0]: its machine.registries.config.ghcr.io.auth.password is stored in plain " +
			"text, and the state and previews show it; store the patch encrypted: " +
			"pulumi config set --secret --path 'talos-proxmox:clusters[0].patches[0]'",
		`{secure: "` + patch + `"}`: "",
	} {
		document := strings.Replace(gpuStack, "kubernetesVersion:", "patches: ["+stated+"]\n      kubernetesVersion:", 1)
		r := mustDeploy(t, decryptedOptions(t, document))

		warned := slices.DeleteFunc(r.Warnings(), func(text string) bool { return !strings.Contains(text, "plain text") })
		assert.Equal(t, want, strings.Join(warned, "\n"))
	}
}
