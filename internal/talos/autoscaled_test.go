package talos

import (
	"bytes"
	"strings"
	"testing"
	"text/template"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAutoscaled: the template of a pool's machine configuration gives each machine its own name, zone and provider id,
// and keeps braces of the user's patches as they are.
func TestAutoscaled(t *testing.T) {
	t.Parallel()

	for _, contract := range []string{"v1.11", "v1.13", "v1.14"} {
		t.Run(contract, func(t *testing.T) {
			t.Parallel()

			like := testNode("general", RoleWorker, 20)
			like.Interfaces = []Interface{{Link: Link{DHCP: true}}}
			like.Region, like.Labels = "homelab", map[string]string{"example.org/kind": "burst"}
			like.Taints = map[string]string{"dedicated": "burst:NoSchedule"}
			like.Patches = []string{"machine: {env: {FORMAT: \"{{.Name}}\"}}\n"}

			planned, invalid, err := Plan(testGeneration(contract), ClusterConfig{}, Autoscaled(like))
			require.NoError(t, err)
			require.Empty(t, invalid)
			assert.Equal(t, autoscaledProvider, planned.Marks.ProviderID)

			bundle, err := placeholderBundle()
			require.NoError(t, err)

			text, err := configurationWith(testGeneration(contract), ClusterConfig{}, Autoscaled(like), bundle)
			require.NoError(t, err)

			parsed, err := template.New("").Parse(AutoscaledTemplate(text))
			require.NoError(t, err)

			var whole bytes.Buffer
			require.NoError(t, parsed.Execute(&whole, map[string]any{"Metadata": map[string]string{
				"Hostname": "burst-x7k2p", "Zone": "pve2", "ProviderID": "proxmox://homelab/20000",
			}}))

			cfg, err := configloader.NewFromBytes(whole.Bytes())
			require.NoError(t, err)
			assert.NotContains(t, whole.String(), "autoscaled-")
			assert.Equal(t, "pve2", cfg.K8sNodeConfig().Labels()[zoneLabel])
			assert.Equal(t, []string{"proxmox://homelab/20000"}, cfg.K8sKubeletConfig().ExtraArgs()["provider-id"])
			assert.Equal(t, "{{.Name}}", cfg.Machine().Env()["FORMAT"])
			assert.True(t, *cfg.Machine().Network().Devices()[0].Selector().Physical())
			assert.Equal(t, 1, strings.Count(whole.String(), "burst-x7k2p"))
			assert.Len(t, cfg.K8sKubeletConfig().ExtraConfig()["registerWithTaints"], 2)
		})
	}
}
