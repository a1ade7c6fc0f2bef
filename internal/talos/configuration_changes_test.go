package talos

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestConfigurationChanges: what a preview shows of a change, with short values and without secrets.
func TestConfigurationChanges(t *testing.T) {
	t.Parallel()

	after := strings.NewReplacer(
		`v: "2"`, `v: "4"`,
		"[1.1.1.1, 8.8.8.8]", "[9.9.9.9]",
		"abcdef.0123456789abcdef", "fedcba.0123456789abcdef",
		"type: worker", "type: worker\n  env: {A: b}\n  files: [{path: /var/a, op: create, content: \"x\\ny\"}]",
		"mtu: 9000", "mtu: 1500", `"10"`, strings.Repeat("1", 2*shownLength),
		"kind: HostnameConfig\nauto: \"off\"\nhostname: one", "kind: KernelModuleConfig\nname: zfs",
	).Replace(plannedConfiguration)

	changes, err := ConfigurationChanges(plannedConfiguration, after, true)
	require.NoError(t, err)

	lines, restarts := []string{}, []string{}

	for _, change := range changes {
		lines = append(lines, change.String())

		if change.Restart {
			restarts = append(restarts, change.Path)
		}
	}

	assert.Equal(t, []string{
		"machine.env.A: none → b",
		`machine.files: none → [{"content":"x\ny","op":"create","path":"/var/a","permissions":0}]`,
		"machine.kubelet.extraArgs.v: 2 → 4",
		`machine.network.nameservers: ["1.1.1.1","8.8.8.8"] → ["9.9.9.9"]`,
		`machine.sysctls["vm.swappiness"]: 10 → ` + strings.Repeat("1", shownLength) + "…",
		"machine.token: another secret",
		"HostnameConfig: removed",
		"KernelModuleConfig zfs: added",
		"LinkConfig eth1: mtu: 9000 → 1500",
	}, lines)
	assert.Equal(t, []string{"machine.env.A", "machine.files"}, restarts)

	hidden, err := ConfigurationChanges(plannedConfiguration, after, false)
	require.NoError(t, err)

	for i, change := range hidden {
		assert.Equal(t, changes[i].Path, change.String(), "without values")
	}

	long, err := ConfigurationChanges(after, strings.Replace(after, "111\n", "112\n", 1), true)
	require.NoError(t, err)
	require.Len(t, long, 1)
	assert.Equal(t, `machine.sysctls["vm.swappiness"]`, long[0].String(), "the difference is not shown")

	service := "\n---\napiVersion: v1alpha1\nkind: ExtensionServiceConfig\nname: tailscale\nenvironment: [TS_AUTHKEY=fake-1, TS_HOSTNAME=one]\n" +
		"configFiles: [{mountPath: /etc/a, content: fake-2}]\n"
	services, err := ConfigurationChanges(after+service, after+strings.ReplaceAll(service, "fake", "other"), true)
	require.NoError(t, err)
	require.Len(t, services, 2)

	for _, change := range services {
		assert.Contains(t, change.String(), "another secret")
		assert.NotRegexp(t, "fake|other-", change.From+change.To)
	}

	none, err := ConfigurationChanges(after, after, true)
	require.NoError(t, err)
	assert.Empty(t, none)
}
