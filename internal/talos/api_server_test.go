package talos

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// testAuthority is a certificate that signed nothing.
const testAuthority = `-----BEGIN CERTIFICATE-----
MIIBezCCASGgAwIBAgIUcDmsV/P4Mmg2gv/SOLovXYJk2vMwCgYIKoZIzj0EAwIw
EjEQMA4GA1UEAwwHZXhhbXBsZTAgFw0yNjExMjkwNTM2MDJaGA8yMTI2MTEwNTA1
MzYwMlowEjEQMA4GA1UEAwwHZXhhbXBsZTBZMBMGByqGSM49AgEGCCqGSM49AwEH
A0IABPSPnBv1lBJtBWnHpmWtkHtVILvjlSA5WEjmJzc+E/8SRNqUtMBkAOuitV1p
OZ0dpdCCo7k355Ogub3jB+/6BdSjUzBRMB0GA1UdDgQWBBQ6JESnIcCfotnThkqL
nGeHKH0HmDAfBgNVHSMEGDAWgBQ6JESnIcCfotnThkqLnGeHKH0HmDAPBgNVHRMB
Af8EBTADAQH/MAoGCCqGSM49BAMCA0gAMEUCIQC0qtpiPCRyDDa/pZV6AutFsQXY
ncF9TijHe6J7JPjo+wIgeNDsiclhnkY+jK1ZwIy5hR2mNGmvF+2IC79iPZz1vgs=
-----END CERTIFICATE-----
`

func testAPIServer() APIServer {
	return APIServer{
		OIDC: &OIDC{
			Issuer: "https://id.example.org/realms/main", ClientID: "kubernetes", CA: testAuthority,
			UsernameClaim: "email", GroupsClaim: "groups", GroupsPrefix: "oidc:",
			RequiredClaims: map[string]string{"hd": "example.org", "acr": "2"},
		},
		AuditPolicy: map[string]any{
			"omitStages": []any{"RequestReceived"},
			"rules": []any{
				map[string]any{"level": "None", "nonResourceURLs": []any{"/healthz*"}}, map[string]any{"level": "Metadata"},
			},
		},
		PodSecurity: &PodSecurity{Enforce: "restricted", ExemptNamespaces: []string{"rook-ceph"}},
	}
}

func testRegistries() Registries {
	return Registries{
		Mirrors: []RegistryMirror{
			{Registry: "*", Endpoints: []string{"https://mirror.example.org/v2/all"}, SkipFallback: true, OverridePath: true},
			{Registry: "docker.io", Endpoints: []string{"https://mirror.example.org", "https://other.example.org"}},
		},
		Auth: []RegistryAuth{{"mirror.example.org", "robot", "fake-password"}},
		TLS: []RegistryTLS{
			{Host: "mirror.example.org", CA: testAuthority}, {Host: "other.example.org", InsecureSkipVerify: true},
		},
	}
}

// TestOIDCFlags: names without prefixes, and one claim, which Talos 1.12 can pass.
func TestOIDCFlags(t *testing.T) {
	t.Parallel()

	assert.Equal(t, object{
		"oidc-issuer-url": "https://id.example.org", "oidc-client-id": "kubernetes",
		"oidc-username-claim": "sub", "oidc-username-prefix": "-", "oidc-groups-claim": "groups", "oidc-groups-prefix": "",
		"oidc-required-claim": "hd=example.org",
	}, OIDC{
		Issuer: "https://id.example.org", ClientID: "kubernetes", UsernameClaim: "sub", GroupsClaim: "groups",
		RequiredClaims: map[string]string{"hd": "example.org"},
	}.flags())
}

// TestHealthEndpointsStayAnonymous: Talos' own probes of the API server need them.
func TestHealthEndpointsStayAnonymous(t *testing.T) {
	t.Parallel()

	cluster := testCluster()
	before := generateConfig(t, cluster, testNode("prod-cp-1", RoleControlPlane, 10), "v1.14").K8sAuthenticationConfig()
	cluster.APIServer = testAPIServer()
	after := generateConfig(t, cluster, testNode("prod-cp-1", RoleControlPlane, 10), "v1.14").K8sAuthenticationConfig()

	require.NotEmpty(t, before.Configuration()["anonymous"])
	assert.Equal(t, before.Configuration()["anonymous"], after.Configuration()["anonymous"])
}

// TestPodSecurityIsMerged: other plugins of a patch, and what Talos sets beside the standard, stay.
func TestPodSecurityIsMerged(t *testing.T) {
	t.Parallel()

	for _, contract := range contracts {
		cluster := testCluster()
		cluster.APIServer.PodSecurity = &PodSecurity{Enforce: "privileged", ExemptNamespaces: []string{"a"}}
		cluster.Patches = []string{inForm(contract,
			"cluster: {apiServer: {admissionControl: [{name: EventRateLimit, configuration: {limits: []}}]}}\n",
			"apiVersion: v1alpha1\nkind: KubeAdmissionControlConfig\nname: EventRateLimit\nconfiguration: {limits: []}\n")}

		_, invalid, err := Plan(testGeneration(contract), cluster, testNode("prod-cp-1", RoleControlPlane, 10))
		require.NoError(t, err)
		require.Empty(t, invalid)

		generated := generateConfig(t, cluster, testNode("prod-cp-1", RoleControlPlane, 10), contract)
		plugins := generated.K8sAdmissionControlPluginConfigs()
		require.Len(t, plugins, 2)

		for _, plugin := range plugins {
			if plugin.Name() != podSecurityPlugin {
				continue
			}

			configuration := plugin.Configuration()
			assert.Equal(t, "privileged", configuration["defaults"].(map[string]any)["enforce"])
			assert.Equal(t, "restricted", configuration["defaults"].(map[string]any)["warn"])
			assert.Equal(t, []any{"kube-system", "a"}, configuration["exemptions"].(map[string]any)["namespaces"])
		}
	}
}

// TestPatchesBesideKeysOfTheAPIServer: a patch may neither change what follows from the keys, nor say the same in
// another form.
func TestPatchesBesideKeysOfTheAPIServer(t *testing.T) {
	t.Parallel()

	const doc = "apiVersion: v1alpha1\nkind: "

	changes := func(part, key string) string {
		return "it changes " + part + ", which follows from " + key + " in the stack file: remove that part, and set it there"
	}

	for name, test := range map[string]struct {
		contract, patch string
		want            string // empty = it is accepted
	}{
		"another issuer": {
			"v1.13", "cluster: {apiServer: {extraArgs: {oidc-issuer-url: https://other.example.org}}}\n",
			changes("cluster.apiServer.extraArgs", "apiServer.oidc"),
		},
		"another argument": {"v1.13", "cluster: {apiServer: {extraArgs: {oidc-signing-algs: RS256, v: '2'}}}\n", ""},
		"the same issuer":  {"v1.13", "cluster: {apiServer: {extraArgs: {oidc-issuer-url: https://id.example.org/realms/main}}}\n", ""},
		"structured authentication beside flags": {
			"v1.13", "cluster: {apiServer: {extraArgs: {authentication-config: /etc/a.yaml}}}\n",
			"it sets cluster.apiServer.extraArgs.authentication-config, which excludes apiServer.oidc in the stack file: remove one of the two",
		},
		"an audit policy from elsewhere": {
			"v1.14", doc + "KubeAPIServerConfig\nextraArgs: {audit-policy-file: /etc/a.yaml}\n",
			"it sets KubeAPIServerConfig.extraArgs.audit-policy-file, which excludes apiServer.auditPolicy in the stack file: remove one of the two",
		},
		"another authentication": {
			"v1.14", doc + "KubeAuthenticationConfig\nconfiguration: {jwt: []}\n", changes("KubeAuthenticationConfig", "apiServer.oidc"),
		},
		"another audit policy": {
			"v1.13", "cluster: {apiServer: {auditPolicy: {apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: None}]}}}\n",
			changes("cluster.apiServer.auditPolicy", "apiServer.auditPolicy"),
		},
		"another audit policy, as a document": {
			"v1.14", doc + "KubeAuditPolicyConfig\nconfiguration: {rules: [{level: None}]}\n",
			changes("KubeAuditPolicyConfig", "apiServer.auditPolicy"),
		},
		"no Pod Security": {
			"v1.13", "cluster: {apiServer: {admissionControl: [{name: PodSecurity, $patch: delete}]}}\n",
			changes("cluster.apiServer.admissionControl", "apiServer.podSecurity"),
		},
		"no Pod Security, as a document": {
			"v1.14", doc + "KubeAdmissionControlConfig\nname: PodSecurity\n$patch: delete\n",
			changes("KubeAdmissionControlConfig", "apiServer.podSecurity"),
		},
		"another standard": {
			"v1.14", doc + "KubeAdmissionControlConfig\nname: PodSecurity\nconfiguration: {defaults: {enforce: baseline}}\n",
			changes("KubeAdmissionControlConfig", "apiServer.podSecurity"),
		},
		"another file":   {"v1.13", "machine: {files: [{op: create, path: /var/a, permissions: 0o644, content: a}]}\n", ""},
		"another mirror": {"v1.14", doc + "RegistryMirrorConfig\nname: ghcr.io\nendpoints: [{url: https://mirror.example.org}]\n", ""},
		"no mirror of a registry": {
			"v1.14", doc + "RegistryMirrorConfig\nname: docker.io\n$patch: delete\n", changes("RegistryMirrorConfig", "registries.mirrors"),
		},
		"another password": {
			"v1.14", doc + "RegistryAuthConfig\nname: mirror.example.org\nusername: robot\npassword: other\n",
			changes("RegistryAuthConfig", "registries.auth"),
		},
		"another check of certificates": {
			"v1.13", doc + "RegistryTLSConfig\nname: other.example.org\ninsecureSkipVerify: false\n",
			changes("RegistryTLSConfig", "registries.tls"),
		},
		"mirrors in two forms": {
			"v1.13", "machine: {registries: {mirrors: {docker.io: {endpoints: [https://mirror.example.org]}}}}\n",
			"it sets machine.registries, which has another form than registries in the stack file: remove that part, and set it there, or " +
				"write it as RegistryMirrorConfig, RegistryAuthConfig and RegistryTLSConfig",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			cluster := testCluster()
			cluster.APIServer, cluster.Registries, cluster.Patches = testAPIServer(), testRegistries(), []string{test.patch}

			_, invalid, err := Plan(testGeneration(test.contract), cluster, testNode("prod-cp-1", RoleControlPlane, 10))
			require.NoError(t, err)

			if test.want == "" {
				assert.Empty(t, invalid)

				return
			}

			require.Equal(t, []PatchError{{OfCluster: true, Reason: test.want}}, invalid)
			assert.NotContains(t, invalid[0].Reason, "password: ")

			cluster.APIServer, cluster.Registries = APIServer{}, Registries{}
			_, invalid, err = Plan(testGeneration(test.contract), cluster, testNode("prod-cp-1", RoleControlPlane, 10))
			require.NoError(t, err)
			assert.Empty(t, invalid, "it is the user's without the keys")
		})
	}
}
