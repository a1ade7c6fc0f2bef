package network

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAdmits(t *testing.T) {
	t.Parallel()

	const (
		block = "apiVersion: v1alpha1\nkind: NetworkDefaultActionConfig\ningress: block\n"
		rule  = "apiVersion: v1alpha1\nkind: NetworkRuleConfig\nname: r\nportSelector: {ports: [50000-50001], protocol: tcp}\n" +
			"ingress: [{subnet: 127.1.0.0/16, except: 127.1.9.0/24}]\n"
		ofUDP = "apiVersion: v1alpha1\nkind: NetworkRuleConfig\nname: u\nportSelector: {ports: [50000], protocol: udp}\n" +
			"ingress: [{subnet: 0.0.0.0/0}]\n"
	)

	for name, test := range map[string]struct {
		documents []string
		source    string
		port      uint16
		want      bool
	}{
		"no firewall":                      {nil, "127.2.0.1", 50000, true},
		"blocked without a rule":           {[]string{block}, "127.1.0.1", 50000, false},
		"a rule":                           {[]string{block, rule}, "127.1.0.1", 50001, true},
		"another network":                  {[]string{block, rule}, "127.2.0.1", 50000, false},
		"an excluded address":              {[]string{block, rule}, "127.1.9.1", 50000, false},
		"another port":                     {[]string{block, rule}, "127.1.0.1", 6443, false},
		"another protocol":                 {[]string{block, ofUDP}, "127.1.0.1", 50000, false},
		"open, and a rule for others":      {[]string{rule}, "127.2.0.1", 50000, false},
		"open, and a rule that matches":    {[]string{rule}, "127.1.0.1", 50000, true},
		"open, and a rule of another port": {[]string{rule}, "127.2.0.1", 6443, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			documents := append([]string{"version: v1alpha1\nmachine: {type: worker}\n"}, test.documents...)
			cfg, err := configloader.NewFromBytes([]byte(strings.Join(documents, "---\n")))
			require.NoError(t, err)
			assert.Equal(t, test.want, Admits(cfg, netip.MustParseAddr(test.source), test.port))
		})
	}
}
