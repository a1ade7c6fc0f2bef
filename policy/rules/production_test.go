package rules

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/tokens"
)

func productionSettings() *settings {
	s := testSettings
	s.Stack, s.Production = "prod", true

	return &s
}

// runProductionCases runs every case in a production stack, and expects no violation in another one.
func runProductionCases(t *testing.T, policy string, cases map[string]policyCase) {
	t.Helper()

	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			assert.Empty(t, evaluate(t, policy, testSettings, c.options, c.plan...))

			c.settings = productionSettings()
			c.check(t, policy)
		})
	}
}

func TestProductionProtection(t *testing.T) {
	t.Parallel()

	secrets := newResource(tokens.Secrets, "s", props{"talosVersion": "v1.12"})
	bootstrap := newResource(tokens.LocalCommand, "b", props{"create": "${TALOSOPS:-go run ./cmd/talosops} bootstrap"})

	runProductionCases(t, "production-protection", map[string]policyCase{
		"all protected": {
			plan: []resource{
				cp("a", "p", 1).protected(), secrets.protected(), bootstrap.protected(), newResource(tokens.Bootstrap, "t", nil).protected(),
			},
		},
		"an unprotected control plane": {
			plan: []resource{cp("a", "p", 1)},
			want: []string{
				"a: control plane of stack prod, a production one, is not protected: set talos-proxmox:protect to true",
			},
		},
		"unprotected secrets": {plan: []resource{secrets}, want: []string{"s: Talos secrets of stack prod"}},
		"an unprotected bootstrap": {
			plan: []resource{
				bootstrap, newResource(tokens.Bootstrap, "t", nil), newResource(tokens.LocalCommand, "c", props{"create": "talosctl -n 10.0.0.1 bootstrap"}),
			},
			want: []string{"t: bootstrap", "b: bootstrap", "c: bootstrap"},
		},
		"what need not be protected": {
			plan: []resource{
				worker("w", "p", 1), newResource(tokens.LocalCommand, "c", props{"create": "talosops wait"}),
				newResource(tokens.LocalCommand, "d", props{"create": "echo bootstrap"}),
			},
		},
		"roles and commands not known yet": {
			plan: []resource{cp("a", "p", 1).with(props{"tags": unknown}), newResource(tokens.LocalCommand, "c", props{"create": unknown})},
		},
		"a secret command": {
			plan: []resource{newResource(tokens.LocalCommand, "c", props{"create": secret{"talosctl bootstrap"}})},
			want: []string{"c: bootstrap"},
		},
	})
}

func TestProductionTLS(t *testing.T) {
	t.Parallel()

	provider := func(p props) resource { return newResource(tokens.ProxmoxProvider, "p", p) }

	runProductionCases(t, "production-tls", map[string]policyCase{
		"verified": {
			plan: []resource{
				provider(props{"endpoint": "https://10.0.0.2:8006/", "insecure": false}), provider(props{"insecure": "false"}),
				file(props{"verify": true}), file(nil),
			},
		},
		"not verified": {
			plan: []resource{provider(props{"insecure": true})},
			want: []string{"provider p: insecure is true: remove proxmoxve:insecure"},
		},
		"as text": {
			plan: []resource{provider(props{"insecure": "true"})}, want: []string{"insecure is true"},
		},
		"an unverified download": {plan: []resource{file(props{"verify": false})}, want: []string{"f: verify is false"}},
		"secret": {
			plan: []resource{provider(props{"insecure": secret{true}})}, want: []string{"insecure is true"},
		},
	})
}

func TestProductionHostKeys(t *testing.T) {
	t.Parallel()

	shell := func(connection any) resource {
		return newResource(tokens.RemoteCommand, "pve1-apply", props{"connection": connection})
	}

	runProductionCases(t, "production-host-keys", map[string]policyCase{
		"a key": {plan: []resource{shell(props{"host": "10.0.0.2", "hostKey": "ssh-ed25519 AAAA"})}},
		"any key": {
			plan: []resource{shell(props{"host": "10.0.0.2"}), shell(secret{props{"host": "10.0.0.2", "privateKey": secret{"x"}}})},
			want: []string{
				"pve1-apply: any key of the host is accepted: set ssh.hostKey of the host",
				"pve1-apply: any key of the host is accepted: set ssh.hostKey of the host",
			},
		},
	})
}

// nodeConfiguration returns the command that applies a machine configuration of these documents.
func nodeConfiguration(documents ...string) resource {
	text, err := json.Marshal(request.Apply{
		Configuration: strings.Join(append([]string{"machine: {type: worker}\n"}, documents...), "---\n"),
	})
	if err != nil {
		panic(err)
	}

	return newResource(tokens.LocalCommand, "n", props{
		"create": "${TALOSOPS:-talosops} apply", "stdin": secret{string(text)},
	})
}

func TestProductionDiskEncryption(t *testing.T) {
	t.Parallel()

	const (
		state     = "apiVersion: v1alpha1\nkind: VolumeConfig\nname: STATE\nencryption: {provider: luks2, keys: [{slot: 0, nodeID: {}}]}\n"
		ephemeral = "apiVersion: v1alpha1\nkind: VolumeConfig\nname: EPHEMERAL\nencryption: {provider: luks2, keys: [{slot: 0, nodeID: {}}]}\n"
		old       = "machine: {systemDiskEncryption: {state: {provider: luks2}, ephemeral: {provider: luks2}}}\n"
	)

	runProductionCases(t, "production-disk-encryption", map[string]policyCase{
		"both": {
			plan: []resource{
				nodeConfiguration(state, ephemeral), nodeConfiguration(state + "---\n" + ephemeral), nodeConfiguration(old),
			},
		},
		"one of them": {
			plan: []resource{nodeConfiguration(state)},
			want: []string{"n: STATE or EPHEMERAL is not encrypted: set encryption.state and encryption.ephemeral"},
		},
		"none": {plan: []resource{nodeConfiguration()}, want: []string{"n: "}},
		"a volume without it": {
			plan: []resource{nodeConfiguration("kind: VolumeConfig\nname: STATE\n", ephemeral)}, want: []string{"n: "},
		},
		"invalid patches": {plan: []resource{nodeConfiguration("kind: [1]\n", "- x\n", "{{{")}, want: []string{"n: "}},
	})
}

func TestProductionEndpoint(t *testing.T) {
	t.Parallel()

	controlPlane := func(name, address, rest string) resource {
		r := nodeConfiguration("machine: {type: controlplane, network: {interfaces: [{addresses: [" + address + "]}]}}\n" + rest)
		r.Name, r.URN = name, r.URN+name

		return r
	}
	old := func(endpoint string) string {
		return "cluster: {clusterName: one, controlPlane: {endpoint: 'https://" + endpoint + ":6443'}}\n"
	}
	documents := "---\nkind: KubeClusterConfig\nclusterName: one\nendpoint: https://10.0.0.2:6443\n---\nkind: X\nendpoint: [1]\n"

	runProductionCases(t, "production-endpoint", map[string]policyCase{
		"one of several": {
			plan: []resource{
				controlPlane("a", "10.0.0.1/24", old("10.0.0.1")), controlPlane("b", "10.0.0.2/24", old("10.0.0.1")), nodeConfiguration(),
			},
			want: []string{
				"a: the endpoint of cluster one, which has 2 control planes, is this one (https://10.0.0.1:6443): set network.vip or endpoint",
			},
		},
		"one of several, in documents": {
			plan: []resource{controlPlane("a", "10.0.0.1/24", documents), controlPlane("b", "10.0.0.2/24", documents)},
			want: []string{"b: the endpoint of cluster one"},
		},
		"the only one":    {plan: []resource{controlPlane("a", "10.0.0.1/24", old("10.0.0.1"))}},
		"another host":    {plan: []resource{controlPlane("a", "10.0.0.1/24", old("k8s.example.org")), controlPlane("b", "10.0.0.2/24", old("k8s.example.org"))}},
		"no endpoint yet": {plan: []resource{controlPlane("a", "10.0.0.1/24", ""), controlPlane("b", "10.0.0.2/24", "")}},
	})
}

func TestProductionTalosFirewall(t *testing.T) {
	t.Parallel()

	const block = "apiVersion: v1alpha1\nkind: NetworkDefaultActionConfig\ningress: block\n"

	runProductionCases(t, "production-talos-firewall", map[string]policyCase{
		"blocked": {plan: []resource{nodeConfiguration(block)}},
		"accepted": {
			plan: []resource{nodeConfiguration("kind: NetworkDefaultActionConfig\ningress: accept\n")},
			want: []string{"n: Talos' firewall lets everything in: set firewall of its cluster"},
		},
		"without a document": {plan: []resource{nodeConfiguration()}, want: []string{"n: "}},
	})
}

func TestProductionPodSecurity(t *testing.T) {
	t.Parallel()

	const controlPlane = "machine: {type: controlplane}\n"

	document := func(enforce string) string {
		return "kind: KubeAdmissionControlConfig\nname: PodSecurity\nconfiguration: {defaults: {enforce: " + enforce + "}}\n"
	}
	old := func(enforce string) string {
		return "cluster: {apiServer: {admissionControl: [{name: PodSecurity, configuration: {defaults: {enforce: " + enforce + "}}}]}}\n"
	}

	runProductionCases(t, "production-pod-security", map[string]policyCase{
		"baseline and restricted": {plan: []resource{
			nodeConfiguration(controlPlane, document("baseline")), nodeConfiguration(controlPlane + old("restricted")),
		}},
		"a worker": {plan: []resource{nodeConfiguration("machine: {type: worker}\n")}},
		"privileged": {
			plan: []resource{nodeConfiguration(controlPlane, document("privileged")), nodeConfiguration(controlPlane + old("privileged"))},
			want: []string{"n: pods may do anything: set apiServer.podSecurity.enforce", "n: "},
		},
		"without the plugin": {
			plan: []resource{nodeConfiguration(controlPlane, "kind: KubeAdmissionControlConfig\nname: EventRateLimit\n")}, want: []string{"n: "},
		},
	})
}

func TestProductionAuditLog(t *testing.T) {
	t.Parallel()

	const controlPlane = "machine: {type: controlplane}\n"

	document := func(level string) string {
		return "kind: KubeAuditPolicyConfig\nconfiguration: {rules: [{level: None, verbs: [get]}, {level: " + level + "}]}\n"
	}
	old := func(level string) string {
		return "cluster: {apiServer: {auditPolicy: {rules: [{level: " + level + "}]}}}\n"
	}

	runProductionCases(t, "production-audit-log", map[string]policyCase{
		"metadata": {plan: []resource{
			nodeConfiguration(controlPlane, document("Metadata")), nodeConfiguration(controlPlane + old("Request")),
		}},
		"a worker": {plan: []resource{nodeConfiguration("machine: {type: worker}\n")}},
		"nothing": {
			plan: []resource{nodeConfiguration(controlPlane, document("None")), nodeConfiguration(controlPlane + old("None"))},
			want: []string{"n: its API server records no requests: set a rule of apiServer.auditPolicy", "n: "},
		},
	})
}

func TestProductionAPIAccess(t *testing.T) {
	t.Parallel()

	const controlPlane = "machine: {type: controlplane}\n"

	anonymous := func(conditions string) string {
		return "kind: KubeAuthenticationConfig\nconfiguration: {anonymous: {enabled: true, conditions: [" + conditions + "]}}\n"
	}

	runProductionCases(t, "production-api-access", map[string]policyCase{
		"as Talos makes it": {plan: []resource{
			nodeConfiguration(controlPlane), nodeConfiguration(controlPlane, anonymous("{path: /livez}")),
		}},
		"a worker": {plan: []resource{nodeConfiguration("machine: {type: worker}\n")}},
		"opened": {
			plan: []resource{
				nodeConfiguration(controlPlane, anonymous("{path: /livez}, {path: /version}")),
				nodeConfiguration(controlPlane + "cluster: {apiServer: {extraArgs: {tls-min-version: VersionTLS10}}}\n"),
			},
			want: []string{"n: its API server lets in what Talos keeps out: remove patches", "n: "},
		},
	})
}

func TestProductionRegistries(t *testing.T) {
	t.Parallel()

	mirror := func(url string) string {
		return "kind: RegistryMirrorConfig\nname: docker.io\nendpoints: [{url: '" + url + "'}]\n"
	}

	runProductionCases(t, "production-registries", map[string]policyCase{
		"verified": {plan: []resource{
			nodeConfiguration(), nodeConfiguration(mirror("https://mirror.example.org"), mirror("http://127.0.0.1:5000")),
			nodeConfiguration("kind: RegistryTLSConfig\nname: mirror.example.org\nca: PEM\n"),
		}},
		"not verified": {
			plan: []resource{
				nodeConfiguration("kind: RegistryTLSConfig\nname: mirror.example.org\ninsecureSkipVerify: true\n"),
				nodeConfiguration("machine: {registries: {config: {a.b: {tls: {insecureSkipVerify: true}}}}}\n"),
			},
			want: []string{"n: images come from whoever answers in a registry's place: set ca", "n: "},
		},
		"not encrypted": {
			plan: []resource{
				nodeConfiguration(mirror("http://mirror.example.org")),
				nodeConfiguration("machine: {registries: {mirrors: {docker.io: {endpoints: ['http://10.0.0.5:5000']}}}}\n"),
			},
			want: []string{"n: ", "n: "},
		},
	})
}

func TestIsProduction(t *testing.T) {
	t.Parallel()

	for stack, want := range map[string]bool{
		"prod":            true,
		"production":      true,
		"eu-prod":         true,
		"prod-2":          true,
		"Prod":            true,
		"acme/talos/prod": true,
		"prod1":           true,
		"dev":             false, "lab": false, "product": false, "nonprod": false, "reproduction": false, "prodigy": false,
	} {
		assert.Equal(t, want, isProduction(stack), stack)
	}
}

func TestReadSettings(t *testing.T) {
	t.Parallel()

	config := func(values map[string]string) func(string) (string, bool) {
		return func(key string) (string, bool) {
			value, ok := values[key]

			return value, ok
		}
	}

	s, err := readSettings("prod", config(map[string]string{
		KeyProduction: "false", keyFactory: "https://factory.example.org/",
		keyHosts: `[{"name": "pve1", "capacity": {"cores": 8, "memoryMiB": 4096}}, {"name": "pve2"}]`,
	}))
	require.NoError(t, err)
	assert.Equal(t, settings{
		Stack: "prod", FactoryURL: "https://factory.example.org",
		Hosts: map[string]capacity{"pve1": {8, 4096}, "pve2": {}},
	}, s)

	s, err = readSettings("lab", config(map[string]string{keyHosts: "{{"}))
	require.NoError(t, err)
	assert.Empty(t, s.Hosts)
	assert.False(t, s.Production)

	_, err = readSettings("lab", config(map[string]string{KeyProduction: "yes"}))
	require.ErrorContains(t, err, `talos-proxmox-policy:production: "yes" is neither true nor false: pulumi config set`)
}

func TestProductionChartDigests(t *testing.T) {
	t.Parallel()

	flux := func(stdin any) []resource {
		return []resource{
			newResource(tokens.LocalCommand, "one-gitops", props{"create": "${TALOSOPS:-talosops} gitops", "stdin": stdin}),
		}
	}

	runProductionCases(t, "production-chart-digests", map[string]policyCase{
		"a digest": {plan: flux(secret{`{"chart": "oci://r/flux", "chartVersion": "0.59.0", "chartDigest": "sha256:00"}`})},
		"unknown":  {plan: flux(unknown)},
		"other verb": {
			plan: []resource{newResource(tokens.LocalCommand, "w", props{"create": "talosops wait", "stdin": `{"chart": "a"}`})},
		},
		"none": {
			plan: flux(secret{`{"chart": "oci://r/flux", "chartVersion": "0.59.0"}`}),
			want: []string{"one-gitops: oci://r/flux:0.59.0 is installed whatever its digest is: state it in gitops.operator.digest"},
		},
	})
}
