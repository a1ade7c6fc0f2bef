package talos

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/blang/semver"
	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/integration"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	known "talos-proxmox/internal/talos"
	"talos-proxmox/lab/factory"
)

// fixture is a provider, a cluster's secrets and a machine.
type fixture struct {
	server  integration.Server
	secrets property.Map
	machine *fakeMachine
}

func newFixture(t *testing.T) fixture {
	t.Helper()

	s := server(t, time.Now)
	secrets := newSecrets(t)

	return fixture{server: s, secrets: secrets, machine: startMachine(t, osAuthority(secrets))}
}

// osAuthority returns only the secrets that a machine needs: its certificate authority.
func osAuthority(secrets property.Map) machineSecrets {
	pair := secrets.Get("machineSecrets").AsMap().Get("certs").AsMap().Get("os")

	return machineSecrets{Certs: certificates{
		OS: certificate{Cert: stringField(pair, "cert"), Key: stringField(pair, "key")},
	}}
}

func (w fixture) inputs(extra map[string]any) property.Map {
	m := map[string]any{
		"node": "127.0.0.1", "endpoint": w.machine.address, "clientConfiguration": w.secrets.Get("clientConfiguration"),
	}
	for k, v := range extra {
		m[k] = v
	}

	return inputs(m)
}

const minimal = "version: v1alpha1\nmachine:\n    type: worker\ncluster: {}\n"

// TestApply retries until the machine is ready. The engine's tests cover the applied configuration, kubeconfigs and
// schematics.
func TestApply(t *testing.T) {
	t.Parallel()

	unavailable := status.Error(codes.Unavailable, "starting")

	for name, test := range map[string]struct {
		refusals []error
		refusal  string
		calls    int
	}{
		"again until the machine is ready": {refusals: []error{unavailable, unavailable}, calls: 3},
		"never again when the configuration is wrong": {
			refusals: []error{status.Error(codes.InvalidArgument, "no such disk")}, refusal: "no such disk", calls: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w := newFixture(t)
			w.machine.refusals = test.refusals

			_, err := create(t, w.server, applyType, w.inputs(map[string]any{"machineConfigurationInput": minimal}))
			assert.Equal(t, test.calls, w.machine.callCount())

			if test.refusal == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, test.refusal)
			}
		})
	}
}

func TestApplyChecksItsInputs(t *testing.T) {
	t.Parallel()

	tests := map[string]struct {
		extra    map[string]any
		property string
	}{
		"timeouts":                {map[string]any{"timeouts": map[string]any{"update": "1m"}}, "timeouts"},
		"a property no one knows": {map[string]any{"colour": "red"}, "colour"},
	}

	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			m := map[string]any{
				"node":                      "127.0.0.1",
				"machineConfigurationInput": minimal,
				"clientConfiguration":       map[string]any{"caCertificate": "", "clientCertificate": "", "clientKey": ""},
			}
			for k, v := range test.extra {
				m[k] = v
			}

			checked, err := server(t, time.Now).Check(p.CheckRequest{Urn: urn(applyType), Inputs: inputs(m)})
			require.NoError(t, err)
			require.Len(t, checked.Failures, 1)
			assert.Equal(t, test.property, checked.Failures[0].Property)
		})
	}
}

func TestApplyPreviews(t *testing.T) {
	t.Parallel()

	w := newFixture(t)

	created, err := w.server.Create(
		p.CreateRequest{
			Urn: urn(applyType), Properties: w.inputs(map[string]any{"machineConfigurationInput": minimal}), DryRun: true,
		},
	)
	require.NoError(t, err)
	assert.Contains(t, created.Properties.Get("machineConfiguration").AsString(), "type: worker")

	unknown := property.New(property.Computed).WithSecret(true)
	created, err = w.server.Create(
		p.CreateRequest{
			Urn: urn(applyType), Properties: w.inputs(map[string]any{"machineConfigurationInput": unknown}), DryRun: true,
		},
	)
	require.NoError(t, err)
	assert.True(t, created.Properties.Get("machineConfiguration").IsComputed())

	_, err = w.server.Create(p.CreateRequest{Urn: urn(applyType), DryRun: true, Properties: w.inputs(map[string]any{
		"machineConfigurationInput": minimal, "configPatches": []string{"machine: ["},
	})})
	require.ErrorContains(t, err, "error loading config patches")

	_, err = w.server.Create(p.CreateRequest{Urn: urn(applyType), DryRun: true, Properties: w.inputs(map[string]any{
		"machineConfigurationInput": minimal, "applyMode": "later",
	})})
	require.ErrorContains(t, err, `does not know the applyMode "later"`)

	assert.Zero(t, w.machine.callCount(), "a preview talks to no machine")
}

func TestRetries(t *testing.T) {
	t.Parallel()

	t.Run("give up with the machine's own words", func(t *testing.T) {
		t.Parallel()

		w := newFixture(t)
		for range 20 {
			w.machine.refusals = append(w.machine.refusals, status.Error(codes.Unavailable, "the machine is going down"))
		}

		at := target{node: "127.0.0.1", endpoint: w.machine.address, client: clientConfiguration{
			CACertificate:     stringField(w.secrets.Get("clientConfiguration"), "caCertificate"),
			ClientCertificate: stringField(w.secrets.Get("clientConfiguration"), "clientCertificate"),
			ClientKey:         stringField(w.secrets.Get("clientConfiguration"), "clientKey"),
		}}

		// Long enough for a first response on a busy machine.
		err := at.retry(t.Context(), 4*time.Second, "asking", func(ctx context.Context, c *client.Client) error {
			_, err := c.Kubeconfig(ctx)

			return err
		})
		require.ErrorContains(t, err, "the machine is going down")
		require.ErrorContains(t, err, "gave up after 4s")
	})

	t.Run("end when the engine cancels", func(t *testing.T) {
		t.Parallel()

		w := newFixture(t)
		for range 1000 {
			w.machine.refusals = append(w.machine.refusals, status.Error(codes.Unavailable, "no"))
		}

		ctx, cancel := context.WithCancel(t.Context())
		s, err := integration.NewServer(
			ctx, "talos", semver.MustParse("0.7.1"), integration.WithProvider(newProvider(time.Now, nil)),
		)
		require.NoError(t, err)

		done := make(chan error, 1)

		go func() {
			_, err := s.Create(p.CreateRequest{Urn: urn(kubeconfigType), Properties: w.inputs(nil)})
			done <- err
		}()

		require.Eventually(t, func() bool { return w.machine.callCount() > 0 }, time.Minute, time.Millisecond)
		cancel()
		require.ErrorContains(t, <-done, "interrupted")
	})
}

// TestKubeconfigPreviews: a preview keeps a kubeconfig known unless its certificate, valid for a year, is due.
func TestKubeconfigPreviews(t *testing.T) {
	t.Parallel()

	client := newSecrets(t).Get("clientConfiguration")
	in := map[string]any{"node": "127.0.0.1", "clientConfiguration": client}
	state := inputs(map[string]any{
		"node": "127.0.0.1", "endpoint": "127.0.0.1", "clientConfiguration": client, "certificateRenewalDuration": "720h",
		"kubeconfigRaw":                 "it",
		"kubernetesClientConfiguration": property.New(client.AsMap().Set("host", property.New("https://127.0.0.1:6443"))),
	})

	for before, due := range map[string]bool{"24h": false, "8770h": true} {
		in["certificateRenewalDuration"] = before
		diff, updated := preview(t, server(t, time.Now), kubeconfigType, state, inputs(in))
		assert.True(t, diff.HasChanges)
		assert.Equal(t, due, updated.Properties.Get("kubeconfigRaw").IsComputed())
	}
}

func TestKubeconfigsThatNameNoCluster(t *testing.T) {
	t.Parallel()

	for _, text := range []string{
		"current-context: nobody", "{current-context: a, contexts: [{name: a, context: {cluster: b, user: c}}]}",
	} {
		_, _, err := parseKubeconfig(text)
		require.ErrorContains(t, err, "names no cluster")
	}
}

// TestRejectedSchematics expects the Image Factory's own message.
func TestRejectedSchematics(t *testing.T) {
	t.Parallel()

	f, err := factory.New("")
	require.NoError(t, err)

	web := httptest.NewServer(f.Handler())
	t.Cleanup(web.Close)

	s := server(t, time.Now)
	require.NoError(t, s.Configure(p.ConfigureRequest{Args: inputs(map[string]any{"imageFactoryUrl": web.URL})}))

	_, err = create(t, s, schematicType, inputs(map[string]any{"schematic": "customisation: {}"}))
	require.ErrorContains(t, err, "answered 400")

	plain, err := create(t, s, schematicType, inputs(map[string]any{}))
	require.NoError(t, err)
	assert.Equal(t, known.Schematic{}.ID(), plain.ID)
}
