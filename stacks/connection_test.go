package stacks

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/enginetest"
)

func TestConnectionSettingsAreValidated(t *testing.T) {
	t.Parallel()

	const (
		noEndpoint = "proxmoxve:endpoint: is missing; set a Proxmox host's API, such as https://10.0.0.2:8006/, or set PROXMOX_VE_ENDPOINT"
		noToken    = "proxmoxve:apiToken: is missing; set it with pulumi config set --secret proxmoxve:apiToken 'user@realm!name=secret', or set PROXMOX_VE_API_TOKEN"
	)
	for name, test := range map[string]struct {
		settings map[string]string
		want     []string
	}{
		"nothing is set":    {nil, []string{noEndpoint, noToken}},
		"an empty endpoint": {map[string]string{"endpoint": "", "apiToken": "a@pve!b=c"}, []string{noEndpoint}},
		"an endpoint without TLS": {
			map[string]string{"endpoint": "http://10.0.0.2:8006/", "apiToken": "a@pve!b=c"},
			[]string{"proxmoxve:endpoint: is not the address of a Proxmox API"},
		},
		"an endpoint that is a host": {
			map[string]string{"endpoint": "pve1:8006", "apiToken": "a@pve!b=c"},
			[]string{"proxmoxve:endpoint: is not the address of a Proxmox API; write it with https://"},
		},
		"a token's secret alone": {
			map[string]string{"endpoint": "https://h:8006", "apiToken": "hidden"},
			[]string{"proxmoxve:apiToken: is not an API token; write it in full"},
		},
		"a token as in an HTTP header": {
			map[string]string{"endpoint": "https://h:8006", "apiToken": "PVEAPIToken=a@pve!b=c"},
			[]string{"proxmoxve:apiToken: begins with a word of the HTTP header; remove PVEAPIToken="},
		},
		"a user without a realm": {
			map[string]string{"endpoint": "https://h:8006", "username": "root", "password": "hidden"},
			[]string{"proxmoxve:username: has no realm"},
		},
		"a user without a password": {
			map[string]string{"endpoint": "https://h:8006", "username": "root@pam"},
			[]string{"proxmoxve:password: is missing beside proxmoxve:username"},
		},
		"a token": {map[string]string{"endpoint": "https://h:8006", "apiToken": "a@pve!b=c"}, nil},
		"a user with a password": {
			map[string]string{"endpoint": "https://h:8006", "username": "root@pam", "password": "hidden"}, nil,
		},
		"a ticket": {
			map[string]string{"endpoint": "https://h:8006", "authTicket": "hidden", "csrfPreventionToken": "hidden"}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := stackOptionsOf(t, "test", twoClusters)
			delete(o.Config, "proxmoxve:endpoint")
			delete(o.Config, "proxmoxve:apiToken")

			for key, value := range test.settings {
				o.Config["proxmoxve:"+key] = value
			}

			r, err := enginetest.Run(o, deploy)
			if len(test.want) == 0 {
				require.NoError(t, err)

				return
			}

			require.Error(t, err)

			for _, text := range test.want {
				require.ErrorContains(t, err, text)
			}

			assert.NotContains(t, err.Error(), "hidden")
			assert.Equal(t, len(test.want), strings.Count(err.Error(), "\nproxmoxve:"))
			assert.Empty(t, r.All())
		})
	}
}

func TestConnectionFromTheEnvironment(t *testing.T) {
	t.Setenv("PROXMOX_VE_ENDPOINT", "https://127.1.0.11:8006/")
	t.Setenv("PROXMOX_VE_API_TOKEN", "a@pve!b=c")
	o := stackOptionsOf(t, "test", twoClusters)
	delete(o.Config, "proxmoxve:endpoint")
	delete(o.Config, "proxmoxve:apiToken")
	mustDeploy(t, o)

	_, err := PlanFile("test", []byte(twoClusters))
	require.NoError(t, err)
}

// TestUnknownKeysWithoutAStackFile reads the keys from the environment: the configuration is in another file or in a
// Pulumi environment.
func TestUnknownKeysWithoutAStackFile(t *testing.T) {
	t.Setenv("PULUMI_CONFIG", `{"talos-proxmox:cluster": "[]", "talos-proxmox:hosts": "[]", "proxmoxve:endpont": "x"}`)
	o := stackOptionsOf(t, "test", twoClusters)
	o.Root = t.TempDir()
	r, err := enginetest.Run(o, deploy)
	require.ErrorContains(
		t, err, "nothing was changed:\ncluster: is not a key of the configuration; did you mean clusters?",
	)
	assert.NotContains(t, err.Error(), "endpont", "other namespaces belong to others")
	assert.Empty(t, r.All())
}

func TestPlanFileIsStrict(t *testing.T) {
	t.Parallel()

	document := strings.Replace(twoClusters, "talos-proxmox:clusters", "talos-proxmox:cluster", 1)

	_, err := PlanFile("test", []byte(document))
	for _, text := range []string{
		"cluster: is not a key of the configuration; did you mean clusters?",
		"proxmoxve:endpoint: is missing; set a Proxmox host's API", "clusters: is missing, and so is machines",
	} {
		require.ErrorContains(t, err, text)
	}

	_, err = PlanFile("test", []byte(strings.Replace(twoClusters, "talos-proxmox:clusters", "talos_proxmox:clusters", 1)))
	require.ErrorContains(t, err, "talos_proxmox:clusters: is not a key of this program; did you mean talos-proxmox:clusters?")

	_, err = PlanFile("test", []byte(strings.Replace(twoClusters, "config:", "conf:", 1)))
	require.EqualError(t, err, "conf: is not a key of a stack file; did you mean config?", "and not that all keys are missing")

	_, err = PlanFile("test", []byte("config:\n  proxmoxve:endpoint: a\n  proxmoxve:endpoint: b\n"))
	require.EqualError(t, err, "Pulumi.test.yaml:3: proxmoxve:endpoint: is in the same map as that of line 2; keep one of them")

	for _, text := range []string{"config:\n  a: 1\n\tb: 2\n", "config:\n\ta: 1\n", "config:\n  a: [1,\n\tb: 2\n"} {
		_, err = PlanFile("test", []byte(text))
		require.ErrorContains(t, err, "unable to read Pulumi.test.yaml (YAML is indented by blanks, never by tabs): ")
	}

	_, err = PlanFile("test", []byte("config:\n  a: [1,\n  b: 2\n"))
	require.ErrorContains(t, err, "unable to read Pulumi.test.yaml: ")
}
