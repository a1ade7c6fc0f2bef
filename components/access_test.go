package components

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/internal/enginetest"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/tokens"
)

func clusterWithUsers() TalosClusterArgs {
	cluster := plannedCluster(1, 1)
	cluster.APIServer = &APIServer{
		OIDC: &OIDC{
			Issuer: "https://id.example.org", ClientID: "kubernetes",
			ClusterRoles: map[string][]string{"cluster-admin": {"platform"}, "view": {"developers", "platform"}},
		},
		AuditPolicy: &AuditPolicy{Rules: []AuditRule{{Level: "Metadata"}}},
		PodSecurity: &PodSecurity{},
	}
	cluster.Registries = &Registries{
		Mirrors: map[string]RegistryMirror{"docker.io": {Endpoints: []string{"https://mirror.example.org"}}},
		Auth:    map[string]RegistryAuth{"mirror.example.org": {Username: "robot", Password: "hidden-password"}},
	}

	return cluster
}

// TestGroupsGetTheirClusterRoles: with the names that they have in the cluster, and until the command is deleted.
func TestGroupsGetTheirClusterRoles(t *testing.T) {
	t.Parallel()

	access := runCluster(t, enginetest.Options{}, clusterWithUsers()).ByType(tokens.LocalCommand)["one-access"]
	assert.Equal(t, map[string][]string{
		"cluster-admin": {"oidc:platform"}, "view": {"oidc:developers", "oidc:platform"},
	}, enginetest.RequestOf[request.Access](t, access).ClusterRoles)
	assert.Contains(t, access.Inputs["delete"].StringValue(), " access --remove")

	cluster := clusterWithUsers()
	cluster.APIServer.OIDC.ClusterRoles = nil
	assert.NotContains(t, runCluster(t, enginetest.Options{}, cluster).ByType(tokens.LocalCommand), "one-access")
}

// TestRegistriesKeepPasswords: the password is in configurations, which are secrets, and in nothing else; nor is a
// digest of it, which would let a short one be guessed.
func TestRegistriesKeepPasswords(t *testing.T) {
	t.Parallel()

	r := runCluster(t, enginetest.Options{}, clusterWithUsers())

	assert.True(t, r.ByType(tokens.LocalCommand)["one-healthy"].Input("environment.FOLLOWS").IsSecret())

	found := 0

	for _, command := range r.ByType(tokens.LocalCommand) {
		for name, input := range command.Inputs {
			if !input.IsSecret() {
				assert.NotContains(t, input.String(), "hidden-password", name)
			}
		}
	}

	for _, name := range []string{"one-cp-1", "one-general-1"} {
		if assert.Contains(t, appliedTo(t, r, name).Configuration, "hidden-password") {
			found++
		}
	}

	assert.Equal(t, 2, found)
}

func TestInvalidAPIServersAndRegistriesAreRefused(t *testing.T) {
	t.Parallel()

	assertRefused(t, clusterWithUsers, NewTalosCluster, map[string]invalidCase[TalosClusterArgs]{
		"an issuer without TLS": {
			func(a *TalosClusterArgs) { a.APIServer.OIDC.Issuer = "http://id.example.org" }, "apiServer.oidc.issuer: ",
		},
		"no client": {func(a *TalosClusterArgs) { a.APIServer.OIDC.ClientID = "" }, "apiServer.oidc.clientId: is missing; set the client"},
		"several claims with an old Talos": {
			func(a *TalosClusterArgs) { a.APIServer.OIDC.RequiredClaims = map[string]string{"a": "b", "c": "d"} },
			"apiServer.oidc.requiredClaims: has several claims, and Talos v1.12.6 can pass only one",
		},
		"an unknown level": {
			func(a *TalosClusterArgs) { a.APIServer.AuditPolicy.Rules[0].Level = "All" }, `apiServer.auditPolicy.rules[0].level: "All" is not a valid value`,
		},
		"no rules": {func(a *TalosClusterArgs) { a.APIServer.AuditPolicy.Rules = nil }, "apiServer.auditPolicy.rules: is empty"},
		"an unknown standard": {
			func(a *TalosClusterArgs) { a.APIServer.PodSecurity.Enforce = "strict" }, `apiServer.podSecurity.enforce: "strict" is not a valid value`,
		},
		"a mirror without TLS": {
			func(a *TalosClusterArgs) {
				a.Registries.Mirrors["docker.io"] = RegistryMirror{Endpoints: []string{"http://mirror.example.org"}}
			}, `registries.mirrors["docker.io"].endpoints[0]: "http://mirror.example.org" is not encrypted`,
		},
		"a user without a password": {
			func(a *TalosClusterArgs) { a.Registries.Auth["mirror.example.org"] = RegistryAuth{Username: "robot"} },
			`registries.auth["mirror.example.org"].password: is missing`,
		},
		"a tailnet without a key, and images without the extension": {
			func(a *TalosClusterArgs) { a.Tailscale = &Tailscale{} },
			"tailscale.authKey: is missing; set the key that the control server created\nnodes[0].talos.extensions: lacks tailscale, " +
				"which tailscale needs; add it\nnodes[1].talos.extensions: lacks tailscale",
		},
		"time servers that this Talos cannot authenticate": {
			func(a *TalosClusterArgs) { a.Network.NTS = true }, "network.nts: true needs Talos v1.14, and one-cp-1 runs v1.12.6",
		},
		"a destination of logs without a port": {
			func(a *TalosClusterArgs) { a.LogDestinations = []string{"tcp://10.0.0.7"} },
			`logDestinations[0]: "tcp://10.0.0.7" is not the address of a server for logs`,
		},
		"a maintenance window without an end": {
			func(a *TalosClusterArgs) {
				a.Maintenance = &Maintenance{Windows: []MaintenanceWindow{{StartTime: "22:00"}}}
			},
			"maintenance.windows[0].endTime: is missing; write it as 22:00",
		},
		"a certificate that is none": {
			func(a *TalosClusterArgs) {
				a.Registries.TLS = map[string]RegistryTLS{"mirror.example.org": {CA: "PEM"}}
			},
			`registries.tls["mirror.example.org"].ca: is not a certificate`,
		},
	})
}
