package engine_test

import (
	"context"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/engine"
)

// TestTailscale: machines join a tailnet with a key that neither previews nor the state show; another key restarts no
// machine.
func TestTailscale(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := w.stack(1, 1)
	s.Clusters[0].YAML = "tailscale: {routes: [" + w.network + ".1.0/24]}"
	stack := strings.Replace(s.yaml(t), "extensions: [", "extensions: [tailscale, ", 1)
	setKey := func(key string) {
		w.configure = func(c *engine.Config) { c.Secrets["talos-proxmox:clusters[0].tailscale.authKey"] = key }
	}

	setKey("tskey-auth-fake1")

	w.up(stack)

	for _, address := range []string{w.network + ".1.10", w.network + ".1.20"} {
		w.withTalosClient(address, func(ctx context.Context, c *talosclient.Client) {
			services, err := c.ServiceInfo(ctx, "ext-tailscale")
			require.NoError(t, err)
			require.Len(t, services, 1)
			assert.Equal(t, "Running", services[0].Service.GetState())
		})
	}

	booted := w.bootTimes()

	setKey("tskey-auth-fake2")

	shown := w.previewOutput(stack)
	assert.Contains(t, shown, "ExtensionServiceConfig tailscale: environment")
	assert.NotContains(t, shown, "tskey")
	w.up(stack)
	assert.Equal(t, booted, w.bootTimes())

	for place, text := range w.writtenFiles() {
		assert.NotContains(t, text+w.output(), "tskey", place)
	}

	w.up(stack, optup.ExpectNoChanges())
}
