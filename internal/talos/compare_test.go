package talos

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const plannedConfiguration = `version: v1alpha1
machine:
  type: worker
  token: abcdef.0123456789abcdef
  sysctls:
    vm.swappiness: "10"
  kubelet:
    extraArgs:
      v: "2"
  network:
    nameservers: [1.1.1.1, 8.8.8.8]
cluster:
  controlPlane:
    endpoint: https://10.0.0.20:6443
---
apiVersion: v1alpha1
kind: HostnameConfig
auto: "off"
hostname: one
---
apiVersion: v1alpha1
kind: LinkConfig
name: eth1
mtu: 9000
`

func TestConfigurationDifferences(t *testing.T) {
	t.Parallel()

	replaced := func(pairs ...string) string {
		text := plannedConfiguration
		for i := 0; i < len(pairs); i += 2 {
			require.Contains(t, text, pairs[i])
			text = strings.Replace(text, pairs[i], pairs[i+1], 1)
		}

		return text
	}
	documents := strings.Split(plannedConfiguration, "---\n")

	for name, test := range map[string]struct {
		running string
		want    []string
	}{
		"the same":                {plannedConfiguration, nil},
		"a comment":               {"# someone was here\n" + plannedConfiguration, nil},
		"another order":           {documents[2] + "---\n" + documents[0] + "---\n" + documents[1], nil},
		"another form of a value": {replaced(`vm.swappiness: "10"`, `vm.swappiness: '10'`), nil},
		"a value": {
			replaced(`"10"`, `"60"`, `v: "2"`, `v: "4"`), []string{
				"machine.kubelet.extraArgs.v", `machine.sysctls["vm.swappiness"]`,
			},
		},
		"a secret":          {replaced("abcdef.0123456789abcdef", "abcdef.fedcba9876543210"), []string{"machine.token"}},
		"a key that is new": {replaced("  type: worker\n", "  type: worker\n  nodeLabels: {a: b}\n"), []string{"machine.nodeLabels"}},
		"a list":            {replaced("8.8.8.8", "9.9.9.9"), []string{"machine.network.nameservers[1]"}},
		"a longer list":     {replaced("8.8.8.8", "8.8.8.8, 9.9.9.9"), []string{"machine.network.nameservers"}},
		"a document": {
			replaced("hostname: one", "hostname: two", "9000", "1500"), []string{
				"HostnameConfig: hostname", "LinkConfig eth1: mtu",
			},
		},
		"a document that is gone": {documents[0] + "---\n" + documents[1], []string{"LinkConfig eth1 (missing)"}},
		"a document that no one planned": {
			plannedConfiguration + "---\napiVersion: v1alpha1\nkind: LinkConfig\nname: eth2\n", []string{
				"LinkConfig eth2 (not planned)",
			},
		},
		"a document of a newer Talos": {
			plannedConfiguration + "---\napiVersion: v1alpha1\nkind: KubeNewConfig\n", []string{
				"KubeNewConfig (not planned)",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			paths, err := ConfigurationDifferences(plannedConfiguration, test.running)
			require.NoError(t, err)
			assert.Equal(t, test.want, paths)
			assert.NotContains(t, strings.Join(paths, " "), "abcdef")
		})
	}
}

func TestConfigurationDifferencesQuoteNothing(t *testing.T) {
	t.Parallel()

	for _, text := range []string{"", "machine: [secret-of-mine\n", "secret-of-mine"} {
		_, err := ConfigurationDifferences(plannedConfiguration, text)
		require.EqualError(t, err, "unable to read the node's configuration: it is not a machine configuration")
		_, err = ConfigurationDifferences(text, plannedConfiguration)
		require.EqualError(t, err, "unable to read the planned configuration: it is not a machine configuration")
	}
}
