package preflight_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/preflight"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/talos"
)

// TestAPIs: what previews say about the endpoint of a cluster's Kubernetes API, with a resolver of the test. Only what
// no control plane has is connected to.
func TestAPIs(t *testing.T) {
	t.Parallel()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })

	balancer := netip.MustParseAddrPort(listener.Addr().String())
	answering := fmt.Sprintf("https://k8s.example.org:%d", balancer.Port())

	for name, tc := range map[string]struct {
		endpoint  string
		vip       string
		addresses []string // empty = the name does not resolve
		says      string   // empty = it is not asked
	}{
		"the first control plane":  {endpoint: "https://10.0.0.10:6443"},
		"the VIP":                  {endpoint: "https://10.0.0.5:6443", vip: "10.0.0.5"},
		"a name of the VIP":        {"https://k8s.example.org:6443", "10.0.0.5", []string{"10.0.0.5"}, "ok       the endpoint of one is at 10.0.0.5\n"},
		"a name of control planes": {"https://k8s.example.org:6443", "", []string{"::ffff:10.0.0.10"}, "ok       the endpoint of one is at 10.0.0.10\n"},
		"a name of a load balancer": {
			answering, "", []string{balancer.Addr().String()}, "ok       the endpoint of one answers at 127.0.0.1\n",
		},
		"no name": {
			"https://k8s.example.org:6443", "", nil,
			`warning  clusters[0].endpoint.host: "k8s.example.org" does not resolve here; up and the machines do not need it, but ` +
				"kubectl does: make DNS records for the control planes 10.0.0.10, or for your load balancer: no such host",
		},
		"no name, with a VIP": {"https://k8s.example.org:6443", "10.0.0.5", nil, "make DNS records for the VIP 10.0.0.5, or"},
		"a name of a worker": {
			"https://k8s.example.org:6443", "",
			[]string{"10.0.0.10", "10.0.0.20"},
			`"k8s.example.org" resolves to 10.0.0.20, and one-gpu-1 does not serve this API; up and the machines do not need it, but ` +
				"kubectl does: make DNS records for the control planes 10.0.0.10\n",
		},
		"control planes on the port of a load balancer": {
			"https://k8s.example.org:443", "",
			[]string{"10.0.0.10"},
			`clusters[0].endpoint.port: "443" is a load balancer's, and k8s.example.org resolves to 10.0.0.10, which serve the API on 6443`,
		},
		"a load balancer that does not answer": {
			"https://127.0.0.1:1", "",
			[]string{"127.0.0.1"},
			`clusters[0].endpoint.host: "127.0.0.1" is at 127.0.0.1, where nothing answers on port 1; up and the machines do not need it, ` +
				"but kubectl does: start the load balancer there, or make DNS records for the control planes 10.0.0.10: " +
				"dial tcp 127.0.0.1:1: connect: connection refused",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := newFixture()
			c := &s.plan.Clusters[0]
			c.ControlPlanes[0].Address = netip.MustParsePrefix("10.0.0.10/24")
			c.Workers[0].Address = netip.MustParsePrefix("10.0.0.20/24")
			c.Endpoint = tc.endpoint
			c.VIP, _ = netip.ParseAddr(tc.vip)

			site := preflight.Read(t.Context(), preflight.Sources{
				Plan: s.plan, Stack: s.stack, Endpoint: "https://127.0.0.1:1", Factory: talos.Factory{URL: "http://127.0.0.1:1"},
				Proxmox: proxmoxapi.NewMachines(func(string) string { return "" }, nil),
				Lookup: func(context.Context, string, string) (found []netip.Addr, err error) {
					for _, address := range tc.addresses {
						found = append(found, netip.MustParseAddr(address))
					}

					if found == nil {
						return nil, errors.New("no such host")
					}

					return found, nil
				},
			})
			s.site.APIs = site.APIs

			report := problem.Report(preflight.Check(s.plan, s.stack, s.site), nil)
			if tc.says == "" {
				assert.Empty(t, site.APIs)
				assert.NotContains(t, report, "endpoint")
			} else {
				assert.Contains(t, report, tc.says)
			}
		})
	}
}
