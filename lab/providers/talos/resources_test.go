package talos

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/blang/semver"
	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/integration"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	known "talos-proxmox/internal/talos"
	"talos-proxmox/lab/factory"
)

// world is a provider, a cluster's secrets and a machine.
type world struct {
	server  integration.Server
	secrets property.Map
	machine *fakeMachine
}

func newWorld(t *testing.T, maintenance bool) world {
	t.Helper()

	s := server(t, time.Now)
	secrets := newSecrets(t)

	return world{server: s, secrets: secrets, machine: startMachine(t, decoded(secrets), maintenance)}
}

// decoded reads only what a machine needs: its certificate authority.
func decoded(secrets property.Map) machineSecrets {
	pair := secrets.Get("machineSecrets").AsMap().Get("certs").AsMap().Get("os")

	return machineSecrets{Certs: certificates{OS: certificate{Cert: member(pair, "cert"), Key: member(pair, "key")}}}
}

func (w world) inputs(extra map[string]any) property.Map {
	m := map[string]any{
		"node": "127.0.0.1", "endpoint": w.machine.address, "clientConfiguration": w.secrets.Get("clientConfiguration"),
	}
	for k, v := range extra {
		m[k] = v
	}

	return inputs(m)
}

const minimal = "version: v1alpha1\nmachine:\n    type: worker\ncluster: {}\n"

func TestApply(t *testing.T) {
	t.Parallel()

	unavailable := status.Error(codes.Unavailable, "starting")

	tests := map[string]struct {
		secure   bool
		refusals []error
		refusal  string
		calls    int
	}{
		"in maintenance mode":                       {calls: 1},
		"to a configured machine, with certificate": {secure: true, calls: 1},
		"again until the machine is ready": {
			refusals: []error{unavailable, unavailable}, calls: 3,
		},
		"never again when the configuration is wrong": {
			refusals: []error{status.Error(codes.InvalidArgument, "no such disk")}, refusal: "no such disk", calls: 1,
		},
	}

	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w := newWorld(t, !test.secure)
			w.machine.refusals = test.refusals

			created, err := create(t, w.server, applyType, w.inputs(map[string]any{
				"machineConfigurationInput": minimal, "configPatches": []string{"machine: {install: {disk: /dev/vda}}"},
			}))
			assert.Len(t, w.machine.seen(), test.calls)

			if test.refusal != "" {
				require.ErrorContains(t, err, test.refusal)

				return
			}

			require.NoError(t, err)
			require.Len(t, w.machine.applied, 1)
			assert.Equal(t, machine.ApplyConfigurationRequest_AUTO, w.machine.applied[0].GetMode())
			assert.Contains(t, string(w.machine.applied[0].GetData()), "disk: /dev/vda")

			assert.Equal(t, "machine_configuration_apply", created.ID)
			assert.Equal(t, "auto", created.Properties.Get("resolvedApplyMode").AsString())
			assert.True(t, created.Properties.Get("machineConfiguration").Secret())
			assert.True(t, created.Properties.Get("machineConfigurationInput").Secret())
			assert.Equal(t, string(w.machine.applied[0].GetData()), created.Properties.Get("machineConfiguration").AsString())
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

	w := newWorld(t, true)

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

	assert.Empty(t, w.machine.seen(), "a preview talks to no machine")
}

func TestApplyUpdatesAndDeletes(t *testing.T) {
	t.Parallel()

	w := newWorld(t, false)
	first := map[string]any{"machineConfigurationInput": minimal}

	created, err := create(t, w.server, applyType, w.inputs(first))
	require.NoError(t, err)

	changed := map[string]any{
		"machineConfigurationInput": minimal,
		"configPatches":             []string{"machine: {install: {disk: /dev/vdb}}"},
	}
	diff, _ := update(t, w.server, applyType, created.Properties, w.inputs(changed), false)
	assert.True(t, diff.HasChanges)

	for name, d := range diff.DetailedDiff {
		assert.NotContains(t, []p.DiffKind{p.UpdateReplace, p.AddReplace, p.DeleteReplace}, d.Kind, name)
	}

	require.Len(t, w.machine.applied, 2)
	assert.Contains(t, string(w.machine.applied[1].GetData()), "/dev/vdb")

	require.NoError(t, w.server.Delete(p.DeleteRequest{Urn: urn(applyType), Properties: created.Properties}))
	assert.Equal(t, []string{"apply", "apply"}, w.machine.seen(), "a delete leaves the machine alone")
}

func TestRetries(t *testing.T) {
	t.Parallel()

	t.Run("give up with the machine's own words", func(t *testing.T) {
		t.Parallel()

		w := newWorld(t, false)
		for range 20 {
			w.machine.refusals = append(w.machine.refusals, status.Error(codes.Unavailable, "the machine is going down"))
		}

		at := target{node: "127.0.0.1", endpoint: w.machine.address, client: clientConfiguration{
			CACertificate:     member(w.secrets.Get("clientConfiguration"), "caCertificate"),
			ClientCertificate: member(w.secrets.Get("clientConfiguration"), "clientCertificate"),
			ClientKey:         member(w.secrets.Get("clientConfiguration"), "clientKey"),
		}}

		// Long enough for a first answer on a busy machine.
		err := at.retry(t.Context(), 4*time.Second, "asking", func(ctx context.Context, c *client.Client) error {
			_, err := c.Kubeconfig(ctx)

			return err
		})
		require.ErrorContains(t, err, "the machine is going down")
		require.ErrorContains(t, err, "gave up after 4s")
	})

	t.Run("end when the engine cancels", func(t *testing.T) {
		t.Parallel()

		w := newWorld(t, false)
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

		require.Eventually(t, func() bool { return len(w.machine.seen()) > 0 }, time.Minute, time.Millisecond)
		cancel()
		require.ErrorContains(t, <-done, "interrupted")
	})
}

// kubeconfigOf makes a kubeconfig out of the cluster's own certificate, which lasts a year.
func kubeconfigOf(secrets property.Map) string {
	client := secrets.Get("clientConfiguration")

	return strings.Join([]string{
		"apiVersion: v1", "kind: Config", "current-context: admin@prod",
		"clusters: [{name: prod, cluster: {server: 'https://127.0.0.1:6443', certificate-authority-data: " + member(
			client, "caCertificate",
		) + "}}]",
		"contexts: [{name: admin@prod, context: {cluster: prod, user: admin@prod}}]",
		"users: [{name: admin@prod, user: {client-certificate-data: " + member(
			client, "clientCertificate",
		) + ", client-key-data: " + member(client, "clientKey") + "}}]",
	}, "\n")
}

func TestKubeconfig(t *testing.T) {
	t.Parallel()

	w := newWorld(t, false)
	w.machine.kubeconfig = kubeconfigOf(w.secrets)

	created, err := create(t, w.server, kubeconfigType, w.inputs(nil))
	require.NoError(t, err)

	state := created.Properties
	assert.Equal(t, "prod", created.ID)
	assert.True(t, state.Get("kubeconfigRaw").Secret())
	assert.Equal(t, "720h", state.Get("certificateRenewalDuration").AsString())
	assert.Equal(t, "https://127.0.0.1:6443", member(state.Get("kubernetesClientConfiguration"), "host"))
	assert.True(t, state.Get("kubernetesClientConfiguration").Secret())

	t.Run("an update keeps it, and keeps it known", func(t *testing.T) {
		t.Parallel()

		diff, preview := update(
			t, w.server, kubeconfigType, state, w.inputs(map[string]any{"certificateRenewalDuration": "24h"}), true,
		)
		assert.True(t, diff.HasChanges)
		assert.Equal(t, state.Get("kubeconfigRaw"), preview.Properties.Get("kubeconfigRaw"))
	})

	t.Run("a certificate about to end is fetched again", func(t *testing.T) {
		t.Parallel()

		diff, preview := update(
			t, w.server, kubeconfigType, state, w.inputs(map[string]any{"certificateRenewalDuration": "8770h"}), true,
		)
		assert.True(t, diff.HasChanges)
		assert.True(t, preview.Properties.Get("kubeconfigRaw").IsComputed())

		before := len(w.machine.seen())
		_, updated := update(
			t, w.server, kubeconfigType, state, w.inputs(map[string]any{"certificateRenewalDuration": "8770h"}), false,
		)
		assert.Len(t, w.machine.seen(), before+1)
		assert.Equal(t, state.Get("kubeconfigRaw"), updated.Properties.Get("kubeconfigRaw"))
	})

	t.Run("an answer that is no kubeconfig is an error", func(t *testing.T) {
		t.Parallel()

		w := newWorld(t, false)
		w.machine.kubeconfig = "current-context: nobody"
		_, err := create(t, w.server, kubeconfigType, w.inputs(nil))
		require.ErrorContains(t, err, "names no cluster")
	})
}

func TestSchematic(t *testing.T) {
	t.Parallel()

	f, err := factory.New("")
	require.NoError(t, err)

	web := httptest.NewServer(f.Handler())
	t.Cleanup(web.Close)

	s := server(t, time.Now)
	checked, err := s.CheckConfig(
		p.CheckRequest{Urn: urn("pulumi:providers:talos"), Inputs: inputs(map[string]any{"imageFactoryUrl": web.URL})},
	)
	require.NoError(t, err)
	require.Empty(t, checked.Failures)
	require.NoError(t, s.Configure(p.ConfigureRequest{Args: checked.Inputs}))

	wanted := known.Schematic{Extensions: []string{"qemu-guest-agent"}}
	created, err := create(t, s, schematicType, inputs(map[string]any{"schematic": wanted.YAML()}))
	require.NoError(t, err)
	assert.Equal(t, wanted.ID(), created.ID)

	_, registered := f.Schematic(wanted.ID())
	assert.True(t, registered)

	plain, err := create(t, s, schematicType, inputs(map[string]any{}))
	require.NoError(t, err)
	assert.Equal(t, known.Schematic{}.ID(), plain.ID)

	_, err = create(t, s, schematicType, inputs(map[string]any{"schematic": "customisation: {}"}))
	require.ErrorContains(t, err, "answered 400")

	other := known.Schematic{Extensions: []string{"tailscale"}}
	diff, _ := update(t, s, schematicType, created.Properties, inputs(map[string]any{"schematic": other.YAML()}), false)
	assert.Equal(t, p.Update, diff.DetailedDiff["schematic"].Kind)

	_, registered = f.Schematic(other.ID())
	assert.True(t, registered)
}
