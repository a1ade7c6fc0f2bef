package talos

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func testGeneration(contract string) Generation {
	return Generation{
		ClusterName: "prod", Endpoint: "https://10.0.0.20:6443", KubernetesVersion: "v1.35.0", Contract: contract,
	}
}

// TestPlan: patches that Talos' loader accepts make configurations that a machine rejects. The conflicts
// are those of Talos 1.12 and later (pkg/machinery/config/types: V1Alpha1ConflictValidate).
func TestPlan(t *testing.T) {
	t.Parallel()

	const (
		stableHostname = "machine: {features: {stableHostname: true}}\n"
		resolver       = "{apiVersion: v1alpha1, kind: ResolverConfig, nameservers: [{address: 10.0.0.1}]}\n"
		harmless       = "machine: {sysctls: {vm.swappiness: \"1\"}}\n"
	)

	digest := strings.Repeat("0", 64)

	for name, test := range map[string]struct {
		contract      string
		cluster, node []string
		role          string
		want          []PatchError
	}{
		"no patch":                   {contract: "v1.13"},
		"patches that are accepted":  {contract: "v1.13", cluster: []string{harmless}, node: []string{harmless}},
		"a worker":                   {contract: "v1.13", node: []string{harmless}, role: RoleWorker},
		"an older contract has this": {contract: "v1.11", cluster: []string{stableHostname}},
		"a host name in two places, in a patch of the cluster": {
			contract: "v1.12", cluster: []string{harmless, stableHostname}, node: []string{harmless},
			want: []PatchError{{OfCluster: true, Index: 1, Reason: "stable hostname is already set in v1alpha1 config"}},
		},
		"name servers in two places, in a patch of a node": {
			contract: "v1.13", cluster: []string{harmless}, node: []string{resolver}, role: RoleWorker,
			want: []PatchError{{Index: 0, Reason: ".machine.network.nameservers is already set in v1alpha1 config" +
				"; write ResolverConfig as machine.network.nameservers, which the cluster's contract has"}},
		},
		"fields that contract 1.14 has in documents": {
			contract: "v1.14", cluster: []string{harmless, "machine: {kubelet: {extraArgs: {v: \"4\"}, nodeIP: {validSubnets: [10.0.0.0/24]}}}\n"},
			node: []string{"cluster: {apiServer: {extraArgs: {v: \"4\"}}}\n", "cluster: {discovery: {enabled: false}}\n", "machine: {time: {servers: [a.org]}}\n"},
			want: []PatchError{
				{OfCluster: true, Index: 1, Reason: ".machine.kubelet.nodeIP is already set in v1alpha1 config; kubelet config is already set in v1alpha1 config (.machine.kubelet)" +
					"; write machine.kubelet as KubeletConfig, which the cluster's contract has; remove machine.kubelet.nodeIP, which follows from network.cidr in the stack file"},
				{Index: 0, Reason: "kube-apiserver config is already set in v1alpha1 config (.cluster.apiServer)" +
					"; write cluster.apiServer as KubeAPIServerConfig, which the cluster's contract has"},
				{Index: 1, Reason: "discovery service is already configured in .cluster.discovery of the v1alpha1 config" +
					"; write cluster.discovery as DiscoveryServiceConfig, which the cluster's contract has"},
				{Index: 2, Reason: "time servers cannot be specified in both v1alpha1 and new-style configuration" +
					"; write machine.time.servers as TimeSyncConfig, which the cluster's contract has"},
			},
		},
		"images of the cluster's version": {
			contract: "v1.13", cluster: []string{"machine: {kubelet: {image: 'registry.example.org:5000/kubelet:v1.35.0-patched@sha256:" + digest + "'}}\n"},
			node: []string{"cluster: {apiServer: {image: 'example.org/kube-apiserver:testing'}, proxy: {image: 'example.org/kube-proxy@sha256:" + digest + "'}}\n"},
		},
		"images of another version": {
			contract: "v1.13", cluster: []string{"machine: {kubelet: {image: 'example.org/kubelet:v1.34.1'}}\n"},
			node: []string{"cluster: {apiServer: {image: 'example.org/kube-apiserver:v1.35.1'}, scheduler: {image: 'example.org/kube-scheduler:v1.34.0'}}\n"},
			want: []PatchError{
				{OfCluster: true, Index: 0, Reason: "the image of the kubelet, example.org/kubelet:v1.34.1, is not of the cluster's kubernetesVersion v1.35.0: " +
					"write that tag, or leave the image out"},
				{Index: 0, Reason: "the image of the API server, example.org/kube-apiserver:v1.35.1, is not of the cluster's kubernetesVersion v1.35.0: " +
					"write that tag, or leave the image out; the image of the scheduler, example.org/kube-scheduler:v1.34.0, is not of the cluster's " +
					"kubernetesVersion v1.35.0: write that tag, or leave the image out"},
			},
		},
		"what follows from keys of the stack file": {
			contract: "v1.13",
			cluster: []string{
				"machine: {install: {image: 'example.org/installer:v1.14.4'}}\n", "machine: {kubelet: {nodeIP: {$patch: delete}}}\n",
				"cluster: {allowSchedulingOnControlPlanes: true, etcd: {advertisedSubnets: {$patch: delete}}}\n",
			},
			want: []PatchError{
				{OfCluster: true, Index: 0, Reason: "it changes machine.install.image, which follows from the version and extensions of its template in the stack file: " +
					"remove that part, and set it there"},
				{OfCluster: true, Index: 1, Reason: "it changes machine.kubelet.nodeIP, which follows from network.cidr in the stack file: remove that part, and set it there"},
				{OfCluster: true, Index: 2, Reason: "it changes cluster.etcd.advertisedSubnets, which follows from network.cidr in the stack file: remove that part, and set it there; " +
					"it changes cluster.allowSchedulingOnControlPlanes, which follows from allowSchedulingOnControlPlanes in the stack file: remove that part, and set it there"},
			},
		},
		"what follows from keys, in documents": {
			contract: "v1.14",
			cluster: []string{
				"apiVersion: v1alpha1\nkind: UnattendedInstallConfig\ninstaller: {image: 'example.org/installer:v1.14.4'}\n" +
					"provisioning: {diskSelector: {match: disk.transport != \"\"}}\n",
				"apiVersion: v1alpha1\nkind: ResolverConfig\n$patch: delete\n",
			},
			want: []PatchError{
				{OfCluster: true, Index: 0, Reason: "it changes UnattendedInstallConfig.installer, which follows from the version and extensions of its template in the stack file: " +
					"remove that part, and set it there"},
				{OfCluster: true, Index: 1, Reason: "it changes ResolverConfig.nameservers, which follows from network.dns in the stack file: remove that part, and set it there"},
			},
		},
		"additions to what follows from keys": {
			contract: "v1.13",
			cluster: []string{
				"machine: {certSANs: [a.example.org], network: {nameservers: [1.1.1.1], interfaces: [{interface: dummy0, dummy: true}]}}\n",
				"cluster: {apiServer: {certSANs: [b.example.org]}, etcd: {advertisedSubnets: [10.9.0.0/24]}}\n", "machine: {time: {servers: [time.example.org]}}\n",
			},
		},
		"images of the control plane, for workers as well": {
			contract: "v1.13", role: RoleWorker, node: []string{"cluster: {apiServer: {image: 'example.org/kube-apiserver:v1.34.0'}}\n"},
		},
		"documents that contract 1.13 has as fields": {
			contract: "v1.13", node: []string{"apiVersion: v1alpha1\nkind: KubeletConfig\nextraArgs: {v: \"4\"}\n"},
			want: []PatchError{{Index: 0, Reason: "KubeletConfig: kubelet image cannot be empty; kubelet config is already set in v1alpha1 config (.machine.kubelet)" +
				"; write KubeletConfig as machine.kubelet, which the cluster's contract has"}},
		},
		"each patch that is wrong": {
			contract: "v1.13", cluster: []string{stableHostname},
			node: []string{harmless, "machine: {network: {interfaces: [{interface: eth9, addresses: [nine]}]}}\n"},
			want: []PatchError{
				{OfCluster: true, Index: 0, Reason: "stable hostname is already set in v1alpha1 config"},
				{Index: 1, Reason: `v1alpha1.Config: [networking.os.device.addresses] "eth9": failed to parse IP address "nine"`},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			c, n := testCluster(), testNode("prod-cp-1", RoleControlPlane, 10)
			c.Patches, n.Patches = test.cluster, test.node

			if test.role != "" {
				n.Role = test.role
			}

			_, invalid, err := Plan(testGeneration(test.contract), c, n)
			require.NoError(t, err)
			assert.Equal(t, test.want, invalid)
		})
	}
}

// TestInDocument: where a later contract has a field, which needs not be below the same name.
func TestInDocument(t *testing.T) {
	t.Parallel()

	for field, want := range map[string][2]string{
		"machine.kubelet.extraArgs.v":         {"KubeletConfig", "extraArgs.v"},
		"machine.kubelet.extraConfig.maxPods": {"KubeletConfig", "config.maxPods"},
		"machine.kubelet.nodeIP.validSubnets": {"KubeNodeConfig", "nodeIP.validSubnets"},
		"machine.nodeLabels.tier":             {"KubeNodeConfig", "labels.tier"},
		"machine.nodeLabels":                  {"KubeNodeConfig", "labels"},
		"cluster.apiServer.certSANs":          {"KubeAPIServerConfig", "certExtraSANs"},
		"cluster.apiServer.extraArgs.v":       {"KubeAPIServerConfig", "extraArgs.v"},
		"machine.time.servers":                {"TimeSyncConfig", "ntp.servers"},
		"machine.install.image":               {},
		"cluster.etcd.extraArgs.election":     {},
		"machine.sysctls.vm":                  {},
	} {
		document, path := InDocument(field)
		assert.Equal(t, want, [2]string{document, path}, field)
	}
}

// TestKubeletInTheFormerForm: who deletes the document KubeletConfig describes the kubelet in the v1alpha1 document,
// and keeps the node's identity and taints.
func TestKubeletInTheFormerForm(t *testing.T) {
	t.Parallel()

	node := testNode("prod-general-1", RoleWorker, 30)
	node.ProviderID, node.Taints = "proxmox://lab/3000", map[string]string{"dedicated": "db:NoSchedule"}
	node.Patches = []string{
		"apiVersion: v1alpha1\nkind: KubeletConfig\n$patch: delete\n",
		"machine: {kubelet: {extraConfig: {maxPods: 250}}}\n",
	}

	planned, invalid, err := Plan(testGeneration("v1.14"), testCluster(), node)
	require.NoError(t, err)
	require.Empty(t, invalid)
	assert.Equal(t, "proxmox://lab/3000", planned.Marks.ProviderID)
	assert.Equal(t, []Taint{{"dedicated", "db", "NoSchedule"}}, planned.Marks.Taints)

	cfg := generateConfig(t, testCluster(), node, "v1.14")
	requireValid(t, cfg)
	assert.Equal(t, "ghcr.io/siderolabs/kubelet:v1.37.0", cfg.K8sKubeletConfig().Image())
	assert.Equal(t, 250, cfg.K8sKubeletConfig().ExtraConfig()["maxPods"])
	assert.True(t, cfg.K8sKubeletConfig().DefaultRuntimeSeccompProfileEnabled())
}

// TestPatchesInDocuments: what clusters of Talos 1.14 have in their own patches, together on one node.
func TestPatchesInDocuments(t *testing.T) {
	t.Parallel()

	document := func(text string) string { return "apiVersion: v1alpha1\nkind: " + text + "\n" }

	cluster := testCluster()
	controlPlane, worker := testNode("prod-cp-1", RoleControlPlane, 10), testNode("prod-gpu-1", RoleWorker, 30)
	cluster.Patches = []string{
		document("KubeletConfig\n$patch: delete"),
		document("ResolverConfig\nnameservers: [{address: 10.0.0.1}]"),
		document("EthernetConfig\nname: eth0\nfeatures: {tx-checksum-ip-generic: false}"),
		document("KmsgLogConfig\nname: logs\nurl: tcp://127.0.0.1:6050"),
		document("TimeSyncConfig\nntp: {servers: [10.0.0.1], useNTS: false}"),
		"machine: {sysctls: {net.ipv4.tcp_congestion_control: bbr}, udev: {rules: ['SUBSYSTEM==\"bdi\"']}, " +
			"logging: {destinations: [{endpoint: 'tcp://127.0.0.1:6050', format: json_lines}]}}\n",
		"machine: {kubelet: {image: 'ghcr.io/siderolabs/kubelet:v1.35.0', extraConfig: {serializeImagePulls: false}}}\n",
	}
	controlPlane.Patches = []string{
		document("KubeFlannelCNIConfig\n$patch: delete"), document("KubeProxyConfig\nenabled: false"),
		document("KubeNodeConfig\nlabels: {topology.kubernetes.io/zone: alpha}"),
		document("KubeAPIServerConfig\nextraArgs: {max-requests-inflight: \"800\"}"),
		document("KubeControllerManagerConfig\nextraArgs: {bind-address: 0.0.0.0}"),
		document("KubeSchedulerConfig\nextraArgs: {bind-address: 0.0.0.0}"),
		document("KubeAuditPolicyConfig\nconfiguration: {apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: None}]}"),
		document("VolumeConfig\nname: EPHEMERAL\nprovisioning: {diskSelector: {match: system_disk}, minSize: 64GiB, maxSize: 64GiB}"),
		document("VolumeConfig\nname: ETCD\nprovisioning: {diskSelector: {match: system_disk}, minSize: 32GiB, maxSize: 32GiB}"),
		"cluster: {etcd: {extraArgs: {quota-backend-bytes: \"8589934592\"}}}\n",
	}
	worker.ProviderID, worker.GPUs, worker.Taints = "proxmox://lab/3000", &GPUs{}, map[string]string{"example.org/link": "wifi:NoSchedule"}
	worker.Patches = []string{
		document("KubeNodeConfig\nnodeIP: {validSubnets: [10.0.0.0/24]}"),
		document("KubeNodeConfig\nlabels: {example.org/disk: config}\nannotations: {example.org/disks: '[]'}"),
		"machine: {kubelet: {extraMounts: [{destination: /var/lib/longhorn, type: bind, source: /var/local/longhorn, options: [bind, rshared, rw]}]}}\n",
		"machine: {kernel: {modules: [{name: nvidia}, {name: cp210x}]}, sysctls: {net.core.bpf_jit_harden: 1}}\n",
		document("UserVolumeConfig\nname: ssd\nprovisioning: {diskSelector: {match: \"!system_disk && disk.size >= 700u * GB\"}, minSize: 700GB, grow: true}"),
	}

	for _, node := range []NodeConfig{controlPlane, worker} {
		planned, invalid, err := Plan(testGeneration("v1.14"), cluster, node)
		require.NoError(t, err)
		assert.Empty(t, invalid, node.Name)

		if node.Role == RoleControlPlane {
			assert.Equal(t, map[string]string{"topology.kubernetes.io/zone": "alpha"}, planned.Marks.Labels)

			continue
		}

		assert.Equal(t, Marks{
			Labels:     map[string]string{"example.org/disk": "config", gpuLabel: "true", pluginLabel: "exclusive"},
			Taints:     []Taint{{"example.org/link", "wifi", "NoSchedule"}},
			ProviderID: "proxmox://lab/3000",
		}, planned.Marks)
	}
}

// TestPatchesOfALaterRelease: a machine reads what its own release of Talos knows.
func TestPatchesOfALaterRelease(t *testing.T) {
	t.Parallel()

	const (
		isolation = "apiVersion: v1alpha1\nkind: SecurityProfileConfig\nworkloadIsolation: true\n"
		etcd      = "apiVersion: v1alpha1\nkind: VolumeConfig\nname: ETCD\nprovisioning: {minSize: 1GB}\n"
		mount     = "apiVersion: v1alpha1\nkind: VolumeConfig\nname: EPHEMERAL\nmount: {secure: false}\n"
		inList    = "apiVersion: v1alpha1\nkind: ResolverConfig\nsearchDomains: {domains: [a.org]}\nhostDNS: {enabled: true}\n"
		old       = "apiVersion: v1alpha1\nkind: VolumeConfig\nname: EPHEMERAL\nprovisioning: {maxSize: 9GiB}\n"
	)

	remedy := func(part, release, version string) string {
		return part + " is of Talos " + release + ", and this machine runs " + version +
			": write it as that release does, or omit it"
	}

	for name, test := range map[string]struct{ version, contract, patch, want string }{
		"a document of 1.14 on 1.14": {"v1.14.4", "v1.13", isolation, ""},
		"a document of 1.14 on 1.13": {"v1.13.9", "v1.13", isolation, remedy("the document SecurityProfileConfig", "v1.14", "v1.13.9")},
		"a volume of 1.14 on 1.14":   {"v1.14.4", "v1.13", etcd, ""},
		"a volume of 1.14 on 1.13":   {"v1.13.9", "v1.13", etcd, remedy("the document VolumeConfig/ETCD", "v1.14", "v1.13.9")},
		"a field of 1.13 on 1.13":    {"v1.13.9", "v1.13", mount, ""},
		"a field of 1.13 on 1.12":    {"v1.12.6", "v1.12", mount, remedy("the field VolumeConfig.mount", "v1.13", "v1.12.6")},
		"a field of 1.14 on 1.13":    {"v1.13.9", "v1.13", inList, remedy("the field ResolverConfig.hostDNS", "v1.14", "v1.13.9")},
		"a volume of 1.12":           {"v1.12.6", "v1.12", old, ""},
		"fields of any release":      {"v1.12.6", "v1.12", "machine:\n  sysctls: {a: b}\n", ""},
		"two, in one patch": {
			"v1.13.9", "v1.13", isolation + "---\n" + etcd,
			remedy("the document SecurityProfileConfig", "v1.14", "v1.13.9") + "; " + remedy("the document VolumeConfig/ETCD", "v1.14", "v1.13.9"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			n := testNode("prod-general-1", RoleWorker, 30)
			n.TalosVersion, n.Patches = test.version, []string{test.patch}

			_, invalid, err := Plan(testGeneration(test.contract), testCluster(), n)
			require.NoError(t, err)

			if test.want == "" {
				assert.Empty(t, invalid)
			} else {
				assert.Equal(t, []PatchError{{Reason: test.want}}, invalid)
			}
		})
	}

	_, err := SplitPatch("apiVersion: v1alpha1\nkind: MacVLANConfig\nname: lan0\nparent: eth0\n")
	require.ErrorContains(t, err, "not accepted by Talos", "of a release that this program does not know")
}

// TestPlanBlamesNoPatch: what is wrong without any patch is nobody's patch.
func TestPlanBlamesNoPatch(t *testing.T) {
	t.Parallel()

	g, n := testGeneration("v1.13"), testNode("prod-cp-1", RoleControlPlane, 10)
	g.Endpoint, n.Patches = "not a URL", []string{"machine: {sysctls: {vm.swappiness: \"1\"}}\n"}

	_, invalid, err := Plan(g, testCluster(), n)
	require.ErrorContains(t, err, `machine configuration of "prod-cp-1"`)
	assert.Empty(t, invalid)
}

// BenchmarkPlan is the cost of fifty nodes before anything is registered.
func BenchmarkPlan(b *testing.B) {
	c, n := testCluster(), testNode("prod-cp-1", RoleControlPlane, 10)
	c.Patches = []string{"machine: {sysctls: {vm.swappiness: \"1\"}}\n"}

	check := func() {
		_, invalid, err := Plan(testGeneration("v1.13"), c, n)
		require.NoError(b, err)
		require.Empty(b, invalid)
	}
	check() // generates the placeholders

	for b.Loop() {
		for range 50 {
			check()
		}
	}
}
