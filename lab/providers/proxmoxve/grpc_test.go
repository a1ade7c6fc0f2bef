package proxmoxve

import (
	"context"
	"testing"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/plugin"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/rpcutil/rpcerror"
	rpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTheEngineLearnsOfAHalfMadeMachine speaks gRPC, as the engine does: the id and state of what exists travel in the
// error.
func TestTheEngineLearnsOfAHalfMadeMachine(t *testing.T) {
	t.Parallel()

	f := newFake(t)
	f.exits["qmstart"] = "start failed: QEMU exited with code 1"
	r := newRig(t, f.URL)

	server, err := p.RawServer("proxmoxve", Version, r.p)(nil)
	require.NoError(t, err)

	inputs, err := plugin.MarshalProperties(
		resource.ToResourcePropertyMap(r.check(typeVirtualMachine, node())), plugin.MarshalOptions{KeepSecrets: true},
	)
	require.NoError(t, err)

	_, err = server.Create(
		context.Background(), &rpc.CreateRequest{Urn: string(urn(typeVirtualMachine)), Properties: inputs},
	)
	require.ErrorContains(t, err, "QEMU exited with code 1")

	converted, ok := rpcerror.FromError(err)
	require.True(t, ok)
	require.Len(t, converted.Details(), 1)

	failed, ok := converted.Details()[0].(*rpc.ErrorResourceInitFailed)
	require.True(t, ok)
	assert.Equal(t, "2000", failed.GetId())
	assert.Contains(t, failed.GetReasons()[0], "QEMU exited with code 1")
	assert.Equal(t, "dev-cp-1", failed.GetProperties().GetFields()["name"].GetStringValue())
}
