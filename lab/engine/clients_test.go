package engine_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"talos-proxmox/stacks"
)

// resources returns the resources of an exported state by URN, without what changes at every run.
func resources(t *testing.T, state string) map[string]any {
	t.Helper()

	var outer struct {
		Deployment apitype.DeploymentV3 `json:"deployment"`
	}
	require.NoError(t, json.Unmarshal([]byte(state), &outer))

	found := map[string]any{}
	for _, r := range outer.Deployment.Resources {
		found[string(r.URN)] = r.Inputs
	}

	require.NotEmpty(t, found)

	return found
}

// output reads an output that is a map of strings.
func output(t *testing.T, outputs auto.OutputMap, name, cluster string) string {
	t.Helper()

	values, ok := outputs[name].Value.(map[string]any)
	require.True(t, ok, "output %s is %T", name, outputs[name].Value)

	text, ok := values[cluster].(string)
	require.True(t, ok, "output %s has no text for %s", name, cluster)

	return text
}

// TestClients reads a cluster with clients no one here wrote: talosctl with the exported talosconfig, client-go with
// the exported kubeconfig.
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
		require.NoError(t, os.WriteFile(config, []byte(output(t, w.outputs(), stacks.Talosconfigs, "one")), 0o600))

		node := w.network + ".1.10"

		for command, want := range map[string][]string{
			"version":     {"Tag:         v1.14.4", node},
			"get members": {"one-cp-1", "one-cp-2", "one-cp-3", "one-general-1"},
			"services":    {"etcd", "kubelet", "apid"},
			"etcd members": {
				"one-cp-1", "one-cp-2", "one-cp-3",
			},
		} {
			// Neither a node nor an endpoint is named: the talosconfig has them.
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

		config, err := clientcmd.RESTConfigFromKubeConfig([]byte(output(t, w.outputs(), stacks.Kubeconfigs, "one")))
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

// TestAddressesByDHCP runs a cluster whose nodes ask for their addresses.
func TestAddressesByDHCP(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := stack{Network: w.network, Clusters: []cluster{one(1, 1)}}
	s.Clusters[0].Addressing = "dhcp"

	w.up(s.yaml(t))
	w.requireRunning(2)
	w.destroy(s.yaml(t))
	w.requireEmpty()
}
