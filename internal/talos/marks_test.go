package talos

import (
	"maps"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
)

// registeredTaints returns the taints with which a configuration's kubelet registers its node.
func registeredTaints(t *testing.T, cfg config.Provider) []Taint {
	t.Helper()

	text, err := yaml.Marshal(cfg.K8sKubeletConfig().ExtraConfig())
	require.NoError(t, err)

	var kubelet struct {
		RegisterWithTaints []Taint `yaml:"registerWithTaints"`
	}
	require.NoError(t, yaml.Unmarshal(text, &kubelet))

	if kubelet.RegisterWithTaints == nil {
		return []Taint{}
	}

	return kubelet.RegisterWithTaints
}

// managedBy returns the taints that Talos manages by a configuration, without the one of every control plane.
func managedBy(cfg config.Provider) map[string]string {
	return added(map[string]string{"node-role.kubernetes.io/control-plane": "NoSchedule"}, cfg.K8sNodeConfig().Taints())
}

// TestMarksMatchTheConfiguration: the marks that the program sets on nodes must never contradict their configuration.
func TestMarksMatchTheConfiguration(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		change  func(c *ClusterConfig, n *NodeConfig, contract string)
		control bool
		labels  map[string]string
		taints  []Taint
		// managed are the taints that Talos itself manages.
		managed map[string]string
	}{
		"nothing": {func(*ClusterConfig, *NodeConfig, string) {}, false, map[string]string{}, []Taint{}, nil},
		"a worker's own": {func(_ *ClusterConfig, n *NodeConfig, _ string) {
			n.Labels, n.Taints = map[string]string{"tier": "db"}, map[string]string{
				"dedicated": "db:NoSchedule", "b": "NoExecute",
			}
		}, false, map[string]string{"tier": "db"}, []Taint{{"b", "", "NoExecute"}, {"dedicated", "db", "NoSchedule"}}, nil},
		"a control plane's own": {func(_ *ClusterConfig, n *NodeConfig, _ string) {
			n.Taints = map[string]string{"dedicated": "etcd:NoExecute"}
		}, true, map[string]string{}, []Taint{
			{"dedicated", "etcd", "NoExecute"},
		}, map[string]string{"dedicated": "etcd:NoExecute"}},
		"GPUs and its own, which wins": {func(_ *ClusterConfig, n *NodeConfig, _ string) {
			n.GPUs, n.Taints = &GPUs{Dedicated: true}, map[string]string{"nvidia.com/gpu": "mine:NoExecute", "a": "NoSchedule"}
		}, false, map[string]string{gpuLabel: "true", pluginLabel: "exclusive"}, []Taint{
			{"a", "", "NoSchedule"}, {"nvidia.com/gpu", "mine", "NoExecute"},
		}, nil},
		"its place on Proxmox": {func(_ *ClusterConfig, n *NodeConfig, _ string) {
			n.Region, n.Zone, n.ProviderID = "homelab", "pve1", "proxmox://homelab/3000"
			n.Taints = map[string]string{"a": "NoSchedule"}
		}, false, map[string]string{regionLabel: "homelab", zoneLabel: "pve1"}, []Taint{{"a", "", "NoSchedule"}}, nil},
		"patches of the cluster and the node": {func(c *ClusterConfig, n *NodeConfig, contract string) {
			n.GPUs, n.Labels = &GPUs{Dedicated: true}, map[string]string{"tier": "db", "zone": "a"}
			c.Patches = []string{
				inForm(contract, "machine:\n  nodeLabels:\n    tier: web\n    zone:\n      $patch: delete\n",
					"apiVersion: v1alpha1\nkind: KubeNodeConfig\nlabels:\n    tier: web\n    zone:\n      $patch: delete\n"),
				"machine:\n  sysctls:\n    a: b\n",
			}
			n.Patches = []string{
				inForm(contract, "machine:\n  kubelet:\n    extraConfig:\n      registerWithTaints: [{key: more, effect: NoSchedule}]\n",
					"apiVersion: v1alpha1\nkind: KubeletConfig\nconfig:\n  registerWithTaints: [{key: more, effect: NoSchedule}]\n"),
			}
		}, false, map[string]string{gpuLabel: "true", pluginLabel: "exclusive", "tier": "web"}, []Taint{
			{"more", "", "NoSchedule"}, {"nvidia.com/gpu", "present", "NoSchedule"},
		}, nil},
		"a patch of a control plane": {func(_ *ClusterConfig, n *NodeConfig, contract string) {
			n.Patches = []string{inForm(contract, "machine:\n  nodeTaints: {dedicated: \"etcd:NoSchedule\"}\n",
				"apiVersion: v1alpha1\nkind: KubeNodeConfig\ntaints: {dedicated: \"etcd:NoSchedule\"}\n")}
		}, true, map[string]string{}, []Taint{
			{"dedicated", "etcd", "NoSchedule"},
		}, map[string]string{"dedicated": "etcd:NoSchedule"}},
	} {
		for _, contract := range contracts {
			t.Run(name+" "+contract, func(t *testing.T) {
				t.Parallel()

				cluster, node := testCluster(), testNode("prod-general-1", RoleWorker, 40)
				if test.control {
					node = testNode("prod-cp-1", RoleControlPlane, 10)
				}

				test.change(&cluster, &node, contract)
				planned, invalid, err := Plan(testGeneration(contract), cluster, node)
				require.NoError(t, err)
				require.Empty(t, invalid)

				marks := planned.Marks
				assert.Equal(t, test.labels, marks.Labels)
				assert.Equal(t, test.taints, marks.Taints)

				cfg := generateConfig(t, cluster, node, contract)
				requireValid(t, cfg)

				for key, value := range test.labels {
					assert.Equal(t, value, cfg.K8sNodeConfig().Labels()[key])
				}

				assert.True(t, maps.Equal(test.managed, managedBy(cfg)), managedBy(cfg))
				assert.Equal(t, node.ProviderID, marks.ProviderID)
				assert.Equal(t, node.ProviderID, strings.Join(cfg.K8sKubeletConfig().ExtraArgs()["provider-id"], " "))

				if name != "a patch of a control plane" {
					assert.ElementsMatch(t, test.taints, registeredTaints(t, cfg))
				}
			})
		}
	}
}

// TestMarksThatCostAWorkerItsLabels are refused at the patch that sets them.
func TestMarksThatCostAWorkerItsLabels(t *testing.T) {
	t.Parallel()

	const managed = ": Kubernetes lets no worker change its taints, and the node would lose its labels with them: set the pool's taints, or "

	for name, test := range map[string]struct{ contract, patch, problem string }{
		"Talos' taints": {
			"v1.13", "machine:\n  nodeTaints: {a: \"b:NoSchedule\"}\n",
			"machine.nodeTaints" + managed + "machine.kubelet.extraConfig.registerWithTaints",
		},
		"Talos' taints, in a document": {
			"v1.14", "apiVersion: v1alpha1\nkind: KubeNodeConfig\ntaints: {a: \"b:NoSchedule\"}\n",
			"KubeNodeConfig: taints" + managed + "KubeletConfig: config.registerWithTaints",
		},
		"a taint of another form": {
			"v1.13", "machine: {kubelet: {extraConfig: {registerWithTaints: [{name: a, effect: NoSchedule}]}}}\n",
			"machine.kubelet.extraConfig.registerWithTaints[0]: is not a taint: set its key, effect and, if any, value",
		},
		"a taint of another form, in a document": {
			"v1.14", "apiVersion: v1alpha1\nkind: KubeletConfig\nconfig: {registerWithTaints: [{name: a, effect: NoSchedule}]}\n",
			"KubeletConfig: config.registerWithTaints[0]: is not a taint: set its key, effect and, if any, value",
		},
		"a restricted label": {
			"v1.13", "machine:\n  nodeLabels: {node-role.kubernetes.io/worker: \"\"}\n",
			"node-role.kubernetes.io/worker: Kubernetes lets no worker give itself this label, and the node would lose its other labels " +
				"with it: use your own prefix, such as example.org/, or set it with kubectl",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			cluster, node := testCluster(), testNode("prod-general-1", RoleWorker, 40)
			node.Patches = []string{"machine: {sysctls: {a: b}}\n", test.patch}
			_, invalid, err := Plan(testGeneration(test.contract), cluster, node)
			require.NoError(t, err)
			assert.Equal(t, []PatchError{{Index: 1, Reason: test.problem}}, invalid)
		})
	}
}
