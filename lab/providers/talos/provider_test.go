package talos

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/blang/semver"
	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/integration"
	"github.com/pulumi/pulumi/sdk/v3/go/common/tokens"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/providers/providertest"
)

const (
	applyType     tokens.Type = "talos:machine/configurationApply:ConfigurationApply"
	schematicType tokens.Type = "talos:imageFactory/schematic:Schematic"
)

// Helpers that call a provider.
var (
	urn, inputs   = providertest.URN, providertest.Inputs
	check, create = providertest.Check, providertest.Create
)

func server(t *testing.T, now func() time.Time) integration.Server {
	t.Helper()

	s, err := integration.NewServer(
		t.Context(), "talos", semver.MustParse("0.7.1"), integration.WithProvider(newProvider(now, nil)),
	)
	require.NoError(t, err)

	return s
}

// preview makes the calls of a preview: Check, Diff and Update.
func preview(
	t *testing.T, s integration.Server, typ tokens.Type, state, in property.Map,
) (p.DiffResponse, p.UpdateResponse) {
	t.Helper()

	in = check(t, s, typ, in)

	diff, err := s.Diff(p.DiffRequest{Urn: urn(typ), State: state, Inputs: in})
	require.NoError(t, err)

	updated, err := s.Update(p.UpdateRequest{Urn: urn(typ), State: state, Inputs: in, DryRun: true})
	require.NoError(t, err)

	return diff, updated
}

// sharedSecrets creates secrets once for all tests: generating the RSA key takes seconds.
var sharedSecrets = sync.OnceValues(func() (p.CreateResponse, error) {
	s, err := integration.NewServer(
		context.Background(), "talos", semver.MustParse("0.7.1"), integration.WithProvider(newProvider(time.Now, nil)),
	)
	if err != nil {
		return p.CreateResponse{}, err
	}

	return s.Create(p.CreateRequest{Urn: urn(secretsType), Properties: inputs(map[string]any{"talosVersion": "v1.12"})})
})

func newSecrets(t *testing.T) property.Map {
	t.Helper()

	created, err := sharedSecrets()
	require.NoError(t, err)

	return created.Properties
}

func TestSecrets(t *testing.T) {
	t.Parallel()

	s := server(t, time.Now)
	created, err := sharedSecrets()
	require.NoError(t, err)
	assert.Equal(t, "machine_secrets", created.ID)

	state := created.Properties
	assert.True(t, state.Get("machineSecrets").Secret())
	assert.True(t, state.Get("clientConfiguration").Secret())
	assert.False(t, state.Get("talosVersion").Secret())

	etcd := state.Get("machineSecrets").AsMap().Get("certs").AsMap().Get("etcd")
	assert.NotEmpty(t, stringField(etcd, "cert"))
	assert.NotEmpty(t, stringField(etcd, "key"))
	assert.NotEmpty(t, stringField(state.Get("machineSecrets").AsMap().Get("trustdinfo"), "token"))

	t.Run("a higher version keeps the secrets, and keeps them known", func(t *testing.T) {
		t.Parallel()

		diff, updated := preview(t, s, secretsType, state, inputs(map[string]any{"talosVersion": "v1.13"}))
		assert.Equal(t, p.Update, diff.DetailedDiff["talosVersion"].Kind)
		assert.Equal(t, state.Get("machineSecrets"), updated.Properties.Get("machineSecrets"))
		assert.Equal(t, state.Get("clientConfiguration"), updated.Properties.Get("clientConfiguration"))
	})

	t.Run("a client certificate about to end is unknown in a preview", func(t *testing.T) {
		t.Parallel()

		later := server(t, func() time.Time { return time.Now().AddDate(0, 11, 5) })
		diff, updated := preview(t, later, secretsType, state, inputs(map[string]any{"talosVersion": "v1.12"}))
		assert.Equal(t, p.Update, diff.DetailedDiff["clientConfiguration"].Kind)
		assert.True(t, updated.Properties.Get("clientConfiguration").IsComputed())
	})

	t.Run("a preview leaves them unknown", func(t *testing.T) {
		t.Parallel()

		created, err := s.Create(p.CreateRequest{Urn: urn(secretsType), Properties: inputs(map[string]any{}), DryRun: true})
		require.NoError(t, err)
		assert.True(t, created.Properties.Get("machineSecrets").IsComputed())
		assert.True(t, created.Properties.Get("machineSecrets").Secret())
		assert.Equal(t, "v1.12", created.Properties.Get("talosVersion").AsString())
	})
}

func TestGetConfiguration(t *testing.T) {
	t.Parallel()

	s := server(t, time.Now)
	secrets := newSecrets(t)
	base := map[string]any{
		"clusterName":     "prod",
		"clusterEndpoint": "https://10.0.0.20:6443",
		"machineType":     "controlplane",
		"machineSecrets":  secrets.Get("machineSecrets"),
	}

	tests := map[string]struct {
		change            map[string]any
		contains, refusal string
	}{
		"the defaults":                {nil, "disk: /dev/sda", ""},
		"a worker":                    {map[string]any{"machineType": "worker"}, "type: worker", ""},
		"a stated Kubernetes version": {map[string]any{"kubernetesVersion": "v1.34.1"}, "kubelet:v1.34.1", ""},
		"a patch": {
			map[string]any{"configPatches": []string{"machine: {install: {disk: /dev/vda}}"}}, "disk: /dev/vda", "",
		},
		"its own document": {
			map[string]any{
				"configPatches": []string{"apiVersion: v1alpha1\nkind: HostnameConfig\nauto: \"off\"\nhostname: n1\n"},
			},
			"hostname: n1", "",
		},
		"an older contract": {map[string]any{"talosVersion": "v1.11.0"}, "type: controlplane", ""},
		"a broken patch": {
			map[string]any{"configPatches": []string{"machine: ["}}, "", "config_patches are invalid",
		},
		"its own machine type":          {map[string]any{"machineType": "etcd"}, "", `got: "etcd"`},
		"a version that is none":        {map[string]any{"talosVersion": "latest"}, "", "invalid version"},
		"secrets that are not base64":   {map[string]any{"machineSecrets": withInvalidKey(secrets)}, "", "is not base64"},
		"a patch of an unknown setting": {map[string]any{"configPatches": []string{"machine: {colour: red}"}}, "", "colour"},
	}

	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			args := map[string]any{}

			for _, m := range []map[string]any{base, test.change} {
				for k, v := range m {
					args[k] = v
				}
			}

			response, err := s.Invoke(
				p.InvokeRequest{Token: "talos:machine/getConfiguration:getConfiguration", Args: inputs(args)},
			)
			if test.refusal != "" {
				require.ErrorContains(t, err, test.refusal)

				return
			}

			require.NoError(t, err)

			configuration := response.Return.Get("machineConfiguration")
			assert.True(t, configuration.Secret())
			assert.Contains(t, configuration.AsString(), test.contains)
			assert.Equal(t, "prod", response.Return.Get("id").AsString())

			_, err = configloader.NewFromBytes([]byte(configuration.AsString()))
			assert.NoError(t, err)
		})
	}
}

func withInvalidKey(secrets property.Map) property.Value {
	m := secrets.Get("machineSecrets").AsMap()
	certs := m.Get("certs").AsMap()
	osCerts := certs.Get("os").AsMap().Set("key", property.New("%"))

	return property.New(m.Set("certs", property.New(certs.Set("os", property.New(osCerts)))))
}
