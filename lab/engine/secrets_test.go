package engine_test

import (
	"encoding/base64"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"proxmox-talos/stacks"
)

// TestNoSecretInPlainText knows every secret of a stack and looks for it in everything a run writes: the state, the events, the output, the copied stack file.
func TestNoSecretInPlainText(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := stack{Network: w.network, Clusters: []cluster{one(1, 1)}}

	result, _ := w.up(s.yaml(t), optup.Diff())
	places := map[string]string{"events": w.events.String(), "output": w.said()}

	for place, text := range w.written() {
		places[place] = text
	}

	state := filepath.Join(w.dir, "state", ".pulumi", "stacks", "talos-proxmox", "lab.json")
	require.Contains(t, places[state], "VM/virtualMachine:VirtualMachine", "the state is looked through")

	secrets := w.secrets(output(t, result.Outputs, stacks.Talosconfigs, "one"), output(t, result.Outputs, stacks.Kubeconfigs, "one"))
	require.Greater(t, len(secrets), 12, "too few secrets to look for")

	for place, text := range places {
		require.NotEmpty(t, text, place)

		for name, secret := range secrets {
			assert.False(t, strings.Contains(text, secret), "%s is in %s", name, place)
			assert.False(t, strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(secret))), "%s is in %s, in base64", name, place)
		}
	}
}

// written are the files that the engine's runs wrote.
func (w *world) written() map[string]string {
	files := map[string]string{}

	for _, folder := range []string{"state", "work", "pulumi"} {
		err := filepath.WalkDir(filepath.Join(w.dir, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
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

// secrets are the lab's credentials and all that the clients' and the machines' configurations hold.
func (w *world) secrets(talosconfig, kubeconfig string) map[string]string {
	connection, err := w.lab.Connection()
	require.NoError(w.t, err)

	_, apiSecret, _ := strings.Cut(connection.APIToken, "=")
	secrets := map[string]string{"API token": apiSecret, "SSH key": middleLine(connection.PrivateKey)}

	collectSecrets(w.t, "talosconfig", talosconfig, secrets)
	collectSecrets(w.t, "kubeconfig", kubeconfig, secrets)

	parsed, err := clientconfig.FromString(talosconfig)
	require.NoError(w.t, err)

	for _, m := range w.lab.Machines.Status() {
		c, err := client.New(w.t.Context(), client.WithConfig(parsed), client.WithEndpoints(m.Address.String()))
		require.NoError(w.t, err)

		configuration, err := safe.StateGetByID[*config.MachineConfig](w.t.Context(), c.COSI, config.ActiveID)
		require.NoError(w.t, err)
		require.NoError(w.t, c.Close())

		text, err := configuration.Provider().Bytes()
		require.NoError(w.t, err)
		collectSecrets(w.t, m.Name, string(text), secrets)
	}

	return secrets
}

// secretKeys are the names under which Talos' and Kubernetes' configurations hold secrets.
var secretKeys = map[string]bool{
	"key": true, "token": true, "secret": true, "client-key-data": true, "aescbcEncryptionSecret": true, "secretboxEncryptionSecret": true,
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

// middleLine stands for a PEM block, which may be written with other line ends.
func middleLine(pem string) string {
	lines := strings.Split(strings.TrimSpace(pem), "\n")

	return lines[len(lines)/2]
}
