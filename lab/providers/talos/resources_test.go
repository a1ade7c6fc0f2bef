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

// target is the machine, with the cluster's client.
func (w fixture) target() target {
	return target{node: "127.0.0.1", endpoint: w.machine.address, client: clientConfiguration{
		CACertificate:     stringField(w.secrets.Get("clientConfiguration"), "caCertificate"),
		ClientCertificate: stringField(w.secrets.Get("clientConfiguration"), "clientCertificate"),
		ClientKey:         stringField(w.secrets.Get("clientConfiguration"), "clientKey"),
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

// TestInputsOfKubeconfigs: the published provider cannot save a state with timeouts.
func TestInputsOfKubeconfigs(t *testing.T) {
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
				"node":                "127.0.0.1",
				"clientConfiguration": map[string]any{"caCertificate": "", "clientCertificate": "", "clientKey": ""},
			}
			for k, v := range test.extra {
				m[k] = v
			}

			checked, err := server(t, time.Now).Check(p.CheckRequest{Urn: urn(kubeconfigType), Inputs: inputs(m)})
			require.NoError(t, err)
			require.Len(t, checked.Failures, 1)
			assert.Equal(t, test.property, checked.Failures[0].Property)
		})
	}
}

func TestRetries(t *testing.T) {
	t.Parallel()

	unavailable := status.Error(codes.Unavailable, "starting")

	for name, test := range map[string]struct {
		refusals []error
		refusal  string
		calls    int
	}{
		"until the machine is ready": {refusals: []error{unavailable, unavailable}, calls: 3},
		"never when the request is wrong": {
			refusals: []error{status.Error(codes.InvalidArgument, "no such disk")}, refusal: "no such disk", calls: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w := newFixture(t)
			w.machine.refusals = test.refusals

			err := w.target().retry(t.Context(), time.Minute, "asking", func(ctx context.Context, c *client.Client) error {
				_, err := c.Version(ctx)

				return err
			})
			assert.Equal(t, test.calls, w.machine.callCount())

			if test.refusal == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, test.refusal)
			}
		})
	}

	t.Run("give up with the machine's own words", func(t *testing.T) {
		t.Parallel()

		w := newFixture(t)
		for range 20 {
			w.machine.refusals = append(w.machine.refusals, status.Error(codes.Unavailable, "the machine is going down"))
		}

		// Long enough for a first response on a busy machine.
		err := w.target().retry(t.Context(), 4*time.Second, "asking", func(ctx context.Context, c *client.Client) error {
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
