package operations

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"talos-proxmox/internal/recovery"
)

// undecryptableState is a state whose secrets nobody can decrypt: a file of a backend, as the CLI writes it.
const undecryptableState = `{"version": 3, "checkpoint": {"stack": "organization/talos-proxmox/prod", "latest": {
	"secrets_providers": {"type": "passphrase", "state": {"salt": "old"}}, "pending_operations": [],
	"resources": [
	{"urn": "urn:s::p::pulumi:pulumi:Stack::p-s", "type": "pulumi:pulumi:Stack", "custom": false, "outputs": {
		"endpoints": {"home": "https://10.0.0.20:6443"},
		"kubeconfigs": {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "x"}}},
	{"urn": "urn:s::p::pulumi:providers:proxmoxve::pve", "type": "pulumi:providers:proxmoxve", "custom": true, "inputs": {
		"endpoint": "https://pve", "apiToken": {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "x"}}},
	{"urn": "urn:s::p::talos:machine/secrets:Secrets::home-secrets", "type": "talos:machine/secrets:Secrets", "custom": true,
		"outputs": {"talosVersion": "v1.12",
		"__pulumi_raw_state_delta": {"obj": {"ps": {"machineSecrets":
			{"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "x"}}}},
		"machineSecrets": {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "x"}}},
	{"urn": "urn:s::p::proxmoxve:VM/virtualMachine:VirtualMachine::home-cp-1-vm",
		"type": "proxmoxve:VM/virtualMachine:VirtualMachine", "custom": true, "inputs": {"vmId": 2000}},
	{"urn": "urn:s::p::command:local:Command::home-healthy", "type": "command:local:Command", "custom": true,
		"inputs": {"stdin": {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "x"}}},
	{"urn": "urn:s::p::command:local:Command::home-bootstrap", "type": "command:local:Command", "custom": true,
		"inputs": {"stdin": {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "x"}},
		"outputs": {"stdout": "{\"bootstrapped\": true}"}},
	{"urn": "urn:s::p::other:index:Thing::after", "type": "other:index:Thing", "custom": true,
		"dependencies": ["urn:s::p::command:local:Command::home-healthy", "urn:s::p::pulumi:pulumi:Stack::p-s"],
		"propertyDependencies": {"a": ["urn:s::p::command:local:Command::home-healthy"]},
		"deletedWith": "urn:s::p::command:local:Command::home-healthy"}]}}}`

// newEmptyStack returns a CLI with a new stack, and the state that was imported into it.
func newEmptyStack(resources string) (pulumi recovery.Pulumi, imported func() string) {
	var text string

	return func(_ context.Context, stdin io.Reader, args ...string) ([]byte, error) {
		switch line := strings.Join(args, " "); line {
		case "stack export --stack prod":
			return []byte(`{"version": 3, "deployment": {"secrets_providers": {"type": "passphrase", "state": {"salt": "new"}},
				"resources": [` + resources + `]}}`), nil
		case "stack import --stack prod":
			content, err := io.ReadAll(stdin)
			text = string(content)

			return nil, err
		default:
			return nil, errors.New("unexpected command " + line)
		}
	}, func() string { return text }
}

func exportedSecrets(t *testing.T) (*secrets.Bundle, []byte) {
	t.Helper()

	bundle, err := secrets.NewBundle(secrets.NewFixedClock(time.Now()), config.TalosVersion1_12)
	require.NoError(t, err)

	text, err := yaml.Marshal(bundle)
	require.NoError(t, err)

	return bundle, text
}

func TestReseal(t *testing.T) {
	t.Parallel()

	bundle, exported := exportedSecrets(t)
	pulumi, imported := newEmptyStack("")

	removed, err := Reseal(
		t.Context(), pulumi, "prod", strings.NewReader(undecryptableState), map[string][]byte{"home": exported}, time.Now(),
	)
	require.NoError(t, err)
	assert.Equal(t, []string{"home-healthy"}, removed)

	var state struct {
		Deployment struct {
			SecretsProviders struct{ State struct{ Salt string } } `json:"secrets_providers"`
			Resources        []struct {
				URN                  string
				Inputs, Outputs      map[string]any
				Dependencies         []string
				PropertyDependencies map[string][]string
				DeletedWith          string
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(imported()), &state))
	assert.Equal(t, "new", state.Deployment.SecretsProviders.State.Salt)
	assert.NotContains(t, imported(), "ciphertext")

	resources := state.Deployment.Resources
	require.Len(t, resources, 6)
	assert.Equal(t, map[string]any{"endpoints": map[string]any{"home": "https://10.0.0.20:6443"}}, resources[0].Outputs)
	assert.Equal(t, map[string]any{"endpoint": "https://pve"}, resources[1].Inputs)
	assert.Equal(t, "v1.12", resources[2].Outputs["talosVersion"], "the contract stays")

	revealed := recovery.Reveal(resources[2].Outputs)
	assert.Equal(t, bundle.Cluster.ID, revealed["machineSecrets"].(map[string]any)["cluster"].(map[string]any)["id"])
	assert.NotEmpty(t, revealed["clientConfiguration"].(map[string]any)["clientKey"])

	assert.Empty(t, resources[4].Inputs)
	assert.NotEmpty(t, resources[4].Outputs["stdout"], "it says that the cluster was bootstrapped")

	assert.Equal(t, []string{"urn:s::p::pulumi:pulumi:Stack::p-s"}, resources[5].Dependencies)
	assert.Empty(t, resources[5].PropertyDependencies["a"])
	assert.Empty(t, resources[5].DeletedWith)
}

func TestResealErrors(t *testing.T) {
	t.Parallel()

	_, exported := exportedSecrets(t)
	home := map[string][]byte{"home": exported}

	for name, test := range map[string]struct {
		state, resources string
		exported         map[string][]byte
		want             string
	}{
		"no state":         {"kubeconfig", "", home, "it is not a state of Pulumi"},
		"an empty state":   {`{"version": 3, "deployment": null}`, "", home, "it is not a state of Pulumi"},
		"a missing export": {undecryptableState, "", nil, `there is no export of the machine secrets of cluster "home"`},
		"a wrong export": {
			undecryptableState, "", map[string][]byte{"home": []byte("x")}, "cluster home: they are not machine secrets",
		},
		"an export of another cluster": {
			undecryptableState, "",
			map[string][]byte{"home": exported, "edge": exported},
			`the state has no machine secrets of cluster "edge"`,
		},
		"a stack that is in use": {
			undecryptableState, `{"urn": "urn:pulumi:prod::p::a:b:C::d", "type": "a:b:C", "custom": true}`, home,
			`stack "prod" has a state with 1 resources already`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			pulumi, imported := newEmptyStack(test.resources)
			_, err := Reseal(t.Context(), pulumi, "prod", strings.NewReader(test.state), test.exported, time.Now())
			require.ErrorContains(t, err, test.want)
			assert.Empty(t, imported())
		})
	}
}
