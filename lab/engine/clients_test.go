package engine_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"talos-proxmox/stacks"
)

// TestClients uses a cluster with independent clients: talosctl with the exported talosconfig, client-go with the
// exported kubeconfig.
func TestClients(t *testing.T) {
	t.Parallel()

	w, _ := upOne(t, 3, 1)

	require.True(t, w.outputs()[stacks.Kubeconfigs].Secret)
	require.True(t, w.outputs()[stacks.Talosconfigs].Secret)

	t.Run("talosctl", func(t *testing.T) {
		t.Parallel()

		talosctl, err := filepath.Abs(filepath.Join(project, ".bin", "talosctl"))
		require.NoError(t, err)

		config := filepath.Join(t.TempDir(), "talosconfig")
		require.NoError(t, os.WriteFile(config, []byte(w.talosconfig()), 0o600))

		node := w.network + ".1.10"

		for command, want := range map[string][]string{
			"version":     {"Tag:         v1.14.4", node},
			"get members": {"one-cp-1", "one-cp-2", "one-cp-3", "one-general-1"},
			"services":    {"etcd", "kubelet", "apid"},
			"etcd members": {
				"one-cp-1", "one-cp-2", "one-cp-3",
			},
		} {
			// The talosconfig has the nodes and the endpoints.
			args := append([]string{"--talosconfig", config}, strings.Fields(command)...)
			out, err := exec.CommandContext(t.Context(), talosctl, args...).CombinedOutput()
			require.NoError(t, err, "talosctl %s: %s", command, out)

			for _, text := range want {
				assert.Contains(t, string(out), text, "talosctl %s", command)
			}
		}
	})

	t.Run("client-go", func(t *testing.T) {
		t.Parallel()

		config, err := clientcmd.RESTConfigFromKubeConfig([]byte(w.kubeconfig()))
		require.NoError(t, err)
		assert.Equal(t, "https://"+w.network+".1.5:6443", config.Host, "the kubeconfig names the virtual IP")

		client, err := kubernetes.NewForConfig(config)
		require.NoError(t, err)

		nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)

		var names []string
		for _, node := range nodes.Items {
			names = append(names, node.Name)
			assert.Equal(t, "v1.37.2", node.Status.NodeInfo.KubeletVersion)
		}

		assert.ElementsMatch(t, []string{"one-cp-1", "one-cp-2", "one-cp-3", "one-general-1"}, names)
	})
}

// TestAddressesByDHCP runs a cluster whose nodes get their addresses by DHCP.
func TestAddressesByDHCP(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := w.stack(1, 1)
	s.Clusters[0].Addressing = "dhcp"

	w.up(s.yaml(t))
	w.requireRunning(2)
	w.destroy(s.yaml(t))
	w.requireEmpty()
}
