package talos

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	onlyHere = ofTalos + "ingress: [{subnet: 10.0.9.0/24, except: 10.0.9.9/32}]\n"
	machine0 = "version: v1alpha1\nmachine: {type: worker}\n"
)

func documents(list ...string) string { return strings.Join(list, "---\n") }

func TestAdmitsToTalos(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		configuration, source string
		want                  bool
	}{
		"no firewall":                    {machine0, "10.0.9.1", true},
		"everything is blocked":          {documents(machine0, blocked), "10.0.9.1", false},
		"a rule":                         {documents(machine0, blocked, onlyHere), "10.0.9.1", true},
		"another address":                {documents(machine0, blocked, onlyHere), "10.0.8.1", false},
		"an excluded address":            {documents(machine0, blocked, onlyHere), "10.0.9.9", false},
		"a rule that closes it":          {documents(machine0, onlyHere), "10.0.8.1", false},
		"a rule that closes it to some":  {documents(machine0, onlyHere), "10.0.9.1", true},
		"a rule of UDP does not open it": {documents(machine0, blocked, strings.Replace(onlyHere, "tcp", "udp", 1)), "10.0.9.1", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			admits, err := AdmitsToTalos(test.configuration, netip.MustParseAddr(test.source))
			require.NoError(t, err)
			assert.Equal(t, test.want, admits)
		})
	}

	_, err := AdmitsToTalos("secret: {", netip.MustParseAddr("10.0.9.1"))
	require.ErrorIs(t, err, errNotConfiguration)
}

// TestFirewallTrial: a trial changes nothing but the firewall, and differs from the planned one, so that a run which
// was killed meanwhile does not pass for one that has applied it.
func TestFirewallTrial(t *testing.T) {
	t.Parallel()

	const other = "apiVersion: v1alpha1\nkind: KmsgLogConfig\nname: remote\nurl: udp://10.0.0.5:514\n"

	for name, test := range map[string]struct {
		running, planned string
		differs          bool
	}{
		"none":                          {machine0, documents(machine0, other), false},
		"the same, in another order":    {documents(machine0, blocked, onlyHere), documents(onlyHere, blocked), false},
		"a new one":                     {documents(machine0, other), documents(machine0, blocked, onlyHere), true},
		"another network":               {documents(machine0, onlyHere), documents(machine0, strings.Replace(onlyHere, "0.9.0", "0.8.0", 1)), true},
		"one that goes":                 {documents(machine0, blocked, onlyHere), machine0, true},
		"another rule without networks": {documents(machine0, ofTalos+"ingress: []\n"), documents(machine0, onlyHere), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			trial, err := FirewallTrial(test.running, test.planned)
			require.NoError(t, err)
			assert.Equal(t, test.differs, IsOnTrial(trial), trial)

			if !test.differs {
				return
			}

			paths, err := ConfigurationDifferences(test.planned, trial)
			require.NoError(t, err)
			assert.Contains(t, strings.Join(paths, "\n"), "NetworkRuleConfig talos-proxmox-trial")
			assert.Equal(t, strings.Contains(test.running, "KmsgLogConfig"), strings.Contains(trial, "KmsgLogConfig"))

			again, err := FirewallTrial(trial, test.planned)
			require.NoError(t, err)
			assert.True(t, IsOnTrial(again))
		})
	}
}

// TestAdmittedBy: excepted networks are cut out of the others.
func TestAdmittedBy(t *testing.T) {
	t.Parallel()

	cut := strings.Replace(onlyHere, "subnet: 10.0.9.0/24, except: 10.0.9.9/32", "subnet: 10.0.9.0/29, except: 10.0.9.1/32", 1)

	admitted, err := AdmittedBy(documents(machine0, blocked, cut))
	require.NoError(t, err)
	require.Len(t, admitted, 1)
	assert.Equal(t, "tcp", admitted[0].Protocol)
	assert.Equal(t, [][2]uint16{{50000, 50000}}, admitted[0].Ports)

	var sources []string
	for _, source := range admitted[0].Sources {
		sources = append(sources, source.String())
	}

	assert.Equal(t, []string{"10.0.9.0/32", "10.0.9.2/31", "10.0.9.4/30"}, sources)

	_, err = AdmittedBy("secret: {")
	require.ErrorIs(t, err, errNotConfiguration)
}
