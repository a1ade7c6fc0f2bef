package verbs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/request"
)

// fakeFirewall is a Proxmox with the firewall of VM 2000, which is on host pve2.
type fakeFirewall struct {
	t       *testing.T
	name    string // of the VM; gone = there is none
	options map[string]any
	rules   []firewallRule
	calls   []string
}

// ServeHTTP implements http.Handler.
func (f *fakeFirewall) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	assert.NoError(f.t, err)

	path := strings.TrimPrefix(r.URL.Path, "/api2/json")
	if r.Method != http.MethodGet {
		f.calls = append(f.calls, r.Method+" "+strings.TrimPrefix(path, "/nodes/pve2/qemu/2000/firewall")+" "+string(body))
	}

	for i := range f.rules {
		f.rules[i].Position, f.rules[i].Digest = i, fmt.Sprint(len(f.rules))
	}

	var data any

	switch r.Method + " " + path {
	case "GET /cluster/resources":
		list := []any{}
		if f.name != "gone" {
			list = append(list, map[string]any{"type": "qemu", "vmid": 2000, "name": f.name, "node": "pve2"})
		}

		data = list
	case "GET /nodes/pve2/qemu/2000/firewall/options":
		data = f.options
	case "PUT /nodes/pve2/qemu/2000/firewall/options":
		set := map[string]any{}
		assert.NoError(f.t, json.Unmarshal(body, &set))

		deleted, _ := set["delete"].(string)
		for name := range strings.SplitSeq(deleted, ",") {
			delete(f.options, name)
		}

		for name, value := range set {
			f.options[name] = value
		}

		delete(f.options, "delete")
	case "GET /nodes/pve2/qemu/2000/firewall/rules":
		data = f.rules
	case "POST /nodes/pve2/qemu/2000/firewall/rules":
		var rule firewallRule
		assert.NoError(f.t, json.Unmarshal(body, &rule))
		f.rules = slices.Insert(f.rules, 0, rule)
	default:
		var position int

		_, err := fmt.Sscanf(r.Method+" "+path, "DELETE /nodes/pve2/qemu/2000/firewall/rules/%d", &position)
		assert.NoError(f.t, err)
		assert.Equal(f.t, f.rules[position].Digest, r.URL.Query().Get("digest"))
		f.rules = slices.Delete(f.rules, position, position+1)
	}

	assert.NoError(f.t, json.NewEncoder(w).Encode(map[string]any{"data": data}))
}

// comments returns the comments of the rules.
func (f *fakeFirewall) comments() (list []string) {
	for _, r := range f.rules {
		list = append(list, r.Comment)
	}

	return list
}

// TestProxmoxFirewall: rules of others stay, new ones come before old ones go, and what is as planned is not touched. A
// firewall that keeps this computer out is switched off again.
func TestProxmoxFirewall(t *testing.T) {
	t.Parallel()

	apid := request.FirewallRule{Type: "in", Action: "ACCEPT", Proto: "tcp", DPort: "50000", Source: "10.0.9.0/24", Comment: "apid"}
	etcd := request.FirewallRule{Type: "in", Action: "ACCEPT", Proto: "tcp", DPort: "2379:2380", Source: "10.0.0.0/24", Comment: "etcd"}
	marked := func(r request.FirewallRule) firewallRule {
		r.Comment = ruleMark + r.Comment

		return firewallRule{FirewallRule: r, Enable: 1}
	}
	mine := firewallRule{FirewallRule: request.FirewallRule{Type: "in", Action: "ACCEPT", Comment: "mine"}, Enable: 1}
	off := marked(apid)
	off.Enable = 0
	isOn := map[string]any{"enable": 1, "policy_in": "DROP", "dhcp": 1, "ndp": 1, "macfilter": 1, "log_level_in": "info"}

	for name, test := range map[string]struct {
		fake       fakeFirewall
		removal    bool
		configured bool
		reaches    []bool // whether this computer gets in, one attempt after the other
		want       []string
		calls      int
		options    string
		err, says  string
	}{
		"a first one": {
			fake: fakeFirewall{options: map[string]any{"log_level_in": "info"}, rules: []firewallRule{mine}},
			want: []string{ruleMark + "apid", ruleMark + "etcd", "mine"}, calls: 3, says: "is on",
			options: "map[dhcp:1 enable:1 log_level_in:info macfilter:1 ndp:1 policy_in:DROP]",
		},
		"as planned": {
			fake: fakeFirewall{options: isOn, rules: []firewallRule{marked(apid), mine, marked(etcd)}},
			want: []string{ruleMark + "apid", "mine", ruleMark + "etcd"}, configured: true, reaches: []bool{true}, says: "as planned",
		},
		"another rule, one that was switched off, and one that is left": {
			fake: fakeFirewall{options: isOn, rules: []firewallRule{off, mine, marked(request.FirewallRule{Comment: "old"})}},
			want: []string{ruleMark + "apid", ruleMark + "etcd", "mine"}, calls: 4, says: "has other rules",
			configured: true, reaches: []bool{true, true},
		},
		"this computer does not get in": {
			fake: fakeFirewall{options: map[string]any{}}, configured: true, reaches: []bool{true, false, true},
			want: []string{ruleMark + "apid", ruleMark + "etcd"}, calls: 4,
			options: "map[dhcp:1 enable:0 macfilter:1 ndp:1 policy_in:DROP]",
			err:     "one-cp-1: Proxmox' firewall did not let this computer in to port 50000, and is off again",
		},
		"the machine restarts at that moment": {
			fake: fakeFirewall{options: map[string]any{}}, configured: true, reaches: []bool{true, false, false},
			want: []string{ruleMark + "apid", ruleMark + "etcd"}, calls: 5, says: "which is therefore on again",
			options: "map[dhcp:1 enable:1 macfilter:1 ndp:1 policy_in:DROP]",
		},
		"the machine did not answer before": {
			fake: fakeFirewall{options: map[string]any{}}, configured: true, reaches: []bool{false},
			want: []string{ruleMark + "apid", ruleMark + "etcd"}, calls: 3,
		},
		"removal": {
			fake: fakeFirewall{options: isOn, rules: []firewallRule{marked(apid), mine, marked(etcd)}}, removal: true,
			want: []string{"mine"}, calls: 3, options: "map[log_level_in:info]", says: "is off",
		},
		"removal where somebody else's is on": {
			fake: fakeFirewall{options: isOn, rules: []firewallRule{mine}}, removal: true, want: []string{"mine"},
		},
		"removal of a machine's whose VMID another one has": {
			fake: fakeFirewall{name: "web-1", rules: []firewallRule{marked(apid)}}, removal: true, want: []string{ruleMark + "apid"},
			says: "does not exist any more",
		},
		"another machine has the VMID": {
			fake: fakeFirewall{name: "web-1"}, err: "one-cp-1: VM 2000 is web-1",
		},
		"there is no machine": {fake: fakeFirewall{name: "gone"}, err: "one-cp-1: there is no VM 2000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			fake := test.fake
			fake.t = t
			fake.options = map[string]any{}

			for option, value := range test.fake.options {
				fake.options[option] = value
			}

			if fake.name == "" {
				fake.name = "one-cp-1"
			}

			server := httptest.NewTLSServer(&fake)
			t.Cleanup(server.Close)

			var said strings.Builder

			cmd := &cobra.Command{}
			cmd.SetErr(&said)

			h, err := openHost(t.Context(), cmd, map[string]string{
				"endpoint": server.URL, "apiToken": "t@pve!t=hunter2", "insecure": "true",
			}, "")
			require.NoError(t, err)

			req := &firewallRequest{request.Firewall{
				VMID: 2000, Machine: "one-cp-1", Address: netip.MustParseAddr("10.0.0.10"), Configured: test.configured,
				Rules: []request.FirewallRule{apid, etcd},
			}}
			attempts := test.reaches
			setter := firewallSetter{
				proxmoxHost: h, req: req,
				pause: func(context.Context, time.Duration) error { return nil },
				reaches: func(context.Context, netip.Addr) bool {
					require.NotEmpty(t, attempts)

					reached := attempts[0]
					attempts = attempts[1:]

					return reached
				},
			}

			err = setter.run(t.Context(), test.removal)
			if test.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.err)
			}

			assert.Equal(t, test.want, fake.comments())
			assert.Len(t, fake.calls, test.calls, fake.calls)
			assert.Contains(t, said.String(), test.says)
			assert.Empty(t, attempts)

			if test.options != "" {
				assert.Equal(t, test.options, fmt.Sprint(fake.options))
			}
		})
	}
}
