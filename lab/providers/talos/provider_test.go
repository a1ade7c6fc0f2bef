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
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/providers/providertest"
)

const schematicType tokens.Type = "talos:imageFactory/schematic:Schematic"

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

// TestFormerConfigurations: a configuration in the state of an earlier version of this program is read and deleted
// without a call.
func TestFormerConfigurations(t *testing.T) {
	t.Parallel()

	s := server(t, time.Now)
	state := inputs(map[string]any{"node": "127.0.0.1", "machineConfiguration": "machine: {}"})

	read, err := s.Read(p.ReadRequest{
		ID: "machine_configuration_apply", Urn: urn(applyType), Properties: state, Inputs: state,
	})
	require.NoError(t, err)
	assert.Equal(t, state, read.Properties)
	require.NoError(t, s.Delete(p.DeleteRequest{ID: read.ID, Urn: urn(applyType), Properties: state}))

	_, err = s.Create(p.CreateRequest{Urn: urn(applyType), Properties: state})
	require.Error(t, err)
}
