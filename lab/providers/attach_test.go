package providers_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/plugin"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"

	known "talos-proxmox/internal/talos"
	"talos-proxmox/lab/factory"
	"talos-proxmox/lab/providers"
)

// attach returns the ports by package name.
func attach(t *testing.T, opts ...providers.Option) map[string]string {
	t.Helper()

	value, stop, err := providers.Attach(t.Context(), opts...)
	require.NoError(t, err)
	t.Cleanup(stop)

	ports := map[string]string{}

	for entry := range strings.SplitSeq(value, ",") {
		name, port, found := strings.Cut(entry, ":")
		require.True(t, found, value)

		ports[name] = port
	}

	return ports
}

// load connects as an engine does for every provider instance.
func load(t *testing.T, port string) pulumirpc.ResourceProviderClient {
	t.Helper()

	conn, err := grpc.NewClient("127.0.0.1:"+port, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })

	return pulumirpc.NewResourceProviderClient(conn)
}

func properties(t *testing.T, m resource.PropertyMap) *structpb.Struct {
	t.Helper()

	s, err := plugin.MarshalProperties(m, plugin.MarshalOptions{KeepSecrets: true, KeepUnknowns: true})
	require.NoError(t, err)

	return s
}

func TestAttachServesAllStandIns(t *testing.T) {
	t.Parallel()

	ports := attach(t)
	versions := map[string]string{"proxmoxve": "6.18.1", "talos": "0.7.1", "command": "1.2.1"}
	require.Len(t, ports, len(versions))

	for name, version := range versions {
		info, err := load(t, ports[name]).GetPluginInfo(t.Context(), &emptypb.Empty{})
		require.NoError(t, err, name)
		assert.Equal(t, version, info.GetVersion(), name)
	}
}

func TestInstancesOfOneProviderAreApart(t *testing.T) {
	t.Parallel()

	ports := attach(t)
	register := func(client pulumirpc.ResourceProviderClient) (*pulumirpc.CreateResponse, error) {
		return client.Create(t.Context(), &pulumirpc.CreateRequest{
			Urn:        string(resource.NewURN("lab", "project", "", "talos:imageFactory/schematic:Schematic", "it")),
			Properties: properties(t, resource.PropertyMap{"schematic": resource.NewProperty(known.Schematic{}.YAML())}),
		})
	}

	clients := make([]pulumirpc.ResourceProviderClient, 2)
	factories := make([]*factory.Factory, len(clients))
	extension := known.Schematic{Extensions: []string{"tailscale"}}

	for i := range clients {
		var err error

		factories[i], err = factory.New("")
		require.NoError(t, err)

		web := httptest.NewServer(factories[i].Handler())
		t.Cleanup(web.Close)

		clients[i] = load(t, ports["talos"])
		_, err = clients[i].Configure(t.Context(), &pulumirpc.ConfigureRequest{
			Args:            properties(t, resource.PropertyMap{"imageFactoryUrl": resource.NewProperty(web.URL)}),
			AcceptSecrets:   true,
			AcceptResources: true,
		})
		require.NoError(t, err)
	}

	_, err := clients[0].Create(t.Context(), &pulumirpc.CreateRequest{
		Urn:        string(resource.NewURN("lab", "project", "", "talos:imageFactory/schematic:Schematic", "it")),
		Properties: properties(t, resource.PropertyMap{"schematic": resource.NewProperty(extension.YAML())}),
	})
	require.NoError(t, err)

	_, registered := factories[0].Schematic(extension.ID())
	assert.True(t, registered)

	_, registered = factories[1].Schematic(extension.ID())
	assert.False(t, registered, "the other instance has its own configuration")

	_, err = clients[0].Cancel(t.Context(), &emptypb.Empty{})
	require.NoError(t, err)

	_, err = register(clients[0])
	require.ErrorContains(t, err, context.Canceled.Error())

	created, err := register(clients[1])
	require.NoError(t, err)
	assert.Equal(t, known.Schematic{}.ID(), created.GetId())
}

func TestStoppingEndsRunningCalls(t *testing.T) {
	t.Parallel()

	value, stop, err := providers.Attach(t.Context())
	require.NoError(t, err)

	_, port, _ := strings.Cut(value[strings.Index(value, "command:"):], ":")
	client := load(t, strings.Split(port, ",")[0])

	_, err = client.GetPluginInfo(t.Context(), &emptypb.Empty{})
	require.NoError(t, err)

	done := make(chan error, 1)

	go func() {
		_, err := client.Create(t.Context(), &pulumirpc.CreateRequest{
			Urn:        string(resource.NewURN("lab", "project", "", "command:local:Command", "it")),
			Properties: properties(t, resource.PropertyMap{"create": resource.NewProperty("sleep 1000")}),
		})
		done <- err
	}()

	stop()
	require.Error(t, <-done)
}
