package engine_test

import (
	"bytes"
	"encoding/base64"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"talos-proxmox/internal/planguard"
	"talos-proxmox/internal/recovery"
	"talos-proxmox/internal/report"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/tokens"
	"talos-proxmox/lab/engine"
	"talos-proxmox/stacks"
)

// TestNoSecretInPlainText searches for every secret of a stack in everything that a run writes: the state, the events,
// the output, the copied stack file.
func TestNoSecretInPlainText(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := w.stack(1, 1)

	w.up(s.yaml(t), optup.Diff())
	places := map[string]string{"events": w.events.String(), "output": w.output()}

	for place, text := range w.writtenFiles() {
		places[place] = text
	}

	state := filepath.Join(w.dir, "state", ".pulumi", "stacks", "talos-proxmox", "lab.json")
	require.Contains(t, places[state], "VM/virtualMachine:VirtualMachine", "the state is searched")

	secrets := w.secrets(
		w.talosconfig(), w.kubeconfig(),
	)
	require.Greater(t, len(secrets), 12, "too few secrets to look for")

	require.Regexp(t, keptRequest, w.state(s.yaml(t)), "it is in the state, encrypted")

	for place, text := range places {
		require.NotEmpty(t, text, place)
		assert.False(t, keptRequest.MatchString(text), "a compressed request with secrets is in %s", place)

		for name, secret := range secrets {
			assert.False(t, strings.Contains(text, secret), "%s is in %s", name, place)
			assert.False(
				t, strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(secret))), "%s is in %s, in base64", name, place,
			)
		}
	}
}

// keptRequest matches a request as the state keeps it, compressed, in JSON or in a text in JSON.
var keptRequest = regexp.MustCompile(`\{\\*"kept\\*":`)

// writtenFiles returns the contents of the files that the engine's runs wrote, by path.
func (w *world) writtenFiles() map[string]string {
	files := map[string]string{}

	for _, folder := range []string{"state", "work", "pulumi"} {
		err := filepath.WalkDir(filepath.Join(w.dir, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() { // the programs of the plugins are links
				return err
			}

			b, err := os.ReadFile(path)
			if len(b) > 0 {
				files[path] = string(b)
			}

			return err
		})
		require.NoError(w.t, err)
	}

	return files
}

// secrets returns the lab's credentials and all secrets in configurations of clients and machines.
func (w *world) secrets(talosconfig, kubeconfig string) map[string]string {
	connection, err := w.lab.Connection()
	require.NoError(w.t, err)

	_, apiSecret, _ := strings.Cut(connection.APIToken, "=")
	secrets := map[string]string{"API token": apiSecret, "SSH key": middleLine(connection.PrivateKey)}

	collectSecrets(w.t, "talosconfig", talosconfig, secrets)
	collectSecrets(w.t, "kubeconfig", kubeconfig, secrets)

	for _, m := range w.lab.Machines.Status() {
		c := w.talosClient(talosconfig, m.Address.String())
		configuration, err := safe.StateGetByID[*config.MachineConfig](w.t.Context(), c.COSI, config.ActiveID)
		require.NoError(w.t, err)
		require.NoError(w.t, c.Close())

		text, err := configuration.Provider().Bytes()
		require.NoError(w.t, err)
		collectSecrets(w.t, m.Name, string(text), secrets)
	}

	return secrets
}

// secretKeys are the keys of secrets in configurations of Talos and Kubernetes.
var secretKeys = map[string]bool{
	"key":                       true,
	"token":                     true,
	"secret":                    true,
	"client-key-data":           true,
	"aescbcEncryptionSecret":    true,
	"secretboxEncryptionSecret": true,
}

func collectSecrets(t testing.TB, source, text string, secrets map[string]string) {
	t.Helper()

	decoder := yaml.NewDecoder(strings.NewReader(text))

	for {
		var document any
		if decoder.Decode(&document) != nil {
			return
		}

		walkSecrets(source, document, secrets)
	}
}

func walkSecrets(path string, value any, secrets map[string]string) {
	switch value := value.(type) {
	case map[string]any:
		for key, child := range value {
			text, ok := child.(string)
			if !ok || !secretKeys[key] || len(text) < 16 {
				walkSecrets(path+"."+key, child, secrets)

				continue
			}

			secrets[path+"."+key] = text
			if pem, err := base64.StdEncoding.DecodeString(text); err == nil && strings.HasPrefix(string(pem), "-----BEGIN") {
				secrets[path+"."+key+" (PEM)"] = middleLine(string(pem))
			}
		}
	case []any:
		for _, child := range value {
			walkSecrets(path, child, secrets)
		}
	}
}

// middleLine represents a PEM block, which may be written with other line ends.
func middleLine(pem string) string {
	lines := strings.Split(strings.TrimSpace(pem), "\n")

	return lines[len(lines)/2]
}

// encryptedTexts are the values of a stack file's encrypted texts by path, one of each kind.
var encryptedTexts = map[string]string{
	"templates.talos.kernelArgs[0]":                       "marker.argument=a4f1xq7wkz",
	"clusters[0].network.ntp[0]":                          "marker-server-a4f1xq7wkz.example.org",
	"clusters[0].patches[0]":                              "machine:\n  sysctls:\n    kernel.domainname: marker-cluster-a4f1xq7wkz\n",
	"clusters[0].workers[0].patches[0]":                   "machine:\n  sysctls:\n    kernel.hostname: marker-pool-a4f1xq7wkz\n",
	`clusters[0].workers[0].labels["example.org/hidden"]`: "marker-label-a4f1xq7wkz",
	"clusters[0].workers[0].encryption.passphrase":        "marker-passphrase-a4f1xq7wkz",
	"clusters[0].workers[0].taints[0]":                    "marker-taint-a4f1xq7wkz=a:PreferNoSchedule",
}

// marker is in all of them.
const marker = "a4f1xq7wkz"

// encryptedStack is a stack file with encryptedTexts.
func encryptedStack(t testing.TB, network string) string {
	t.Helper()

	c := clusterOne(1, 1)
	c.WorkerYAML = "labels: {example.org/hidden: {secure: x}}\n          taints: [{secure: x}]\n          patches: [{secure: x}]" +
		"\n          encryption: {ephemeral: static, passphrase: {secure: x}}"
	text := stack{Network: network, Clusters: []cluster{c}}.yaml(t)

	for from, to := range map[string]string{
		"extensions: [qemu-guest-agent]": "extensions: [qemu-guest-agent], kernelArgs: [{secure: x}]",
		"        dns: [":                 "        ntp: [{secure: x}]\n        dns: [",
		"    - name: one\n":              "    - name: one\n      patches: [{secure: x}]\n",
	} {
		require.Contains(t, text, from)
		text = strings.Replace(text, from, to, 1)
	}

	return text
}

// TestEncryptedTextsAreNowhereInPlainText searches for a stack file's encrypted texts in everything that runs write and
// print, including reports.
func TestEncryptedTextsAreNowhereInPlainText(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	texts := maps.Clone(encryptedTexts)
	w.configure = func(c *engine.Config) {
		for path, text := range texts {
			require.Contains(t, c.Secrets, "talos-proxmox:"+path, "the stack file has it encrypted")
			c.Secrets["talos-proxmox:"+path] = text
		}
	}
	s := encryptedStack(t, w.network)

	w.up(s, optup.Diff())

	kept := w.deployment(s).Resources
	at := slices.IndexFunc(kept, func(r apitype.ResourceV3) bool {
		return r.URN.Name() == "one-general-1"+tokens.OfConfiguration
	})
	require.GreaterOrEqual(t, at, 0)

	stdin, _ := recovery.Reveal(kept[at].Inputs)["stdin"].(string)
	applied := request.AppliedConfiguration(stdin)
	require.Contains(t, applied.Configuration, "marker-pool-a4f1xq7wkz", "it is in the state, encrypted")

	places := map[string]string{}
	for place, text := range w.writtenFiles() {
		places[place] = text
	}

	changed := strings.Replace(s, "count: 1, cores: 2", "count: 1, cores: 3", 1)
	require.NotEqual(t, s, changed)

	log, printed := w.previewEvents(changed)
	places["events of a preview"], places["preview"] = string(log), printed

	parsed, err := planguard.Parse(bytes.NewReader(log))
	require.NoError(t, err)
	require.True(t, parsed.Finished, w.output())

	commented, err := stacks.PlanOfConfig(parsed.Stack, parsed.Config)
	require.NoError(t, err, "the comment needs no secret")
	require.Len(t, commented.Clusters[0].Nodes(), 2)

	_, err = w.preview(changed, optpreview.Diff())
	require.NoError(t, err)

	w.refresh(s)

	file := places[filepath.Join(w.dir, "work", "Pulumi.lab.yaml")]

	credentials := 2 // the token and the SSH key
	if testProviders == engine.Published {
		credentials++ // the key again, for the provider's own SSH
	}

	require.Equal(t, len(texts)+credentials, strings.Count(file, "secure:"))

	plan, err := stacks.PlanFile("lab", []byte(file))
	require.NoError(t, err, "a report needs no secret")

	page, err := report.HTML(plan)
	require.NoError(t, err)

	places["report"], places["page"] = report.Markdown(plan, nil), string(page)

	texts["clusters[0].patches[0]"] = "machine:\n  sysctls: [marker-wrong-a4f1xq7wkz\n"
	_, err = w.preview(s)
	require.ErrorContains(
		t, err, "clusters[0].patches[0]: is not a patch for Talos, and the reason is not shown for an encrypted one",
	)

	places["error"], places["events of up"], places["output"] = err.Error(), w.events.String(), w.output()

	for place, text := range places {
		require.NotEmpty(t, text, place)
		assert.False(t, strings.Contains(text, marker), "an encrypted text is in %s", place)
		assert.False(t, keptRequest.MatchString(text), "a compressed request with encrypted texts is in %s", place)
	}
}
