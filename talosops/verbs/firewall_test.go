package verbs

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/request"
)

// fakeFirewall is a Proxmox with the firewall of VM 2000, which is on host pve2.
type fakeFirewall struct {
	fakeAPI

	name    string // of the VM; gone = there is none
	off     bool   // that of the data centre
	options map[string]any
	rules   []firewallRule
}

func (f *fakeFirewall) handle(w http.ResponseWriter, r *http.Request, path string, parameters map[string]any) {
	for i := range f.rules {
		f.rules[i].Position, f.rules[i].Digest = i, fmt.Sprint(len(f.rules))
	}

	var data any

	switch r.Method + " " + strings.TrimPrefix(path, "/nodes/pve2/qemu/2000/firewall") {
	case "GET /cluster/resources":
		list := []any{}
		if f.name != "gone" {
			list = append(list, map[string]any{"type": "qemu", "vmid": 2000, "name": f.name, "node": "pve2"})
		}

		data = list
	case "GET /cluster/firewall/options":
		data = map[string]any{"enable": map[bool]int{true: 0, false: 1}[f.off]}
	case "GET /options":
		data = f.options
	case "PUT /options":
		deleted, _ := parameters["delete"].(string)
		for name := range strings.SplitSeq(deleted, ",") {
			delete(f.options, name)
		}

		delete(parameters, "delete")
		maps.Copy(f.options, parameters)
	case "GET /rules":
		data = f.rules
	case "POST /rules":
		f.rules = slices.Insert(f.rules, 0, f.rule(parameters))
	default:
		var position int

		_, err := fmt.Sscanf(r.Method+" "+path, "DELETE /nodes/pve2/qemu/2000/firewall/rules/%d", &position)
		assert.NoError(f.t, err)
		assert.Equal(f.t, f.rules[position].Digest, r.URL.Query().Get("digest"))
		f.rules = slices.Delete(f.rules, position, position+1)
	}

	f.answer(w, data)
}

func (f *fakeFirewall) rule(parameters map[string]any) (rule firewallRule) {
	text, err := json.Marshal(parameters)
	assert.NoError(f.t, err)
	assert.NoError(f.t, json.Unmarshal(text, &rule))

	return rule
}

// comments returns the comments of the rules.
func (f *fakeFirewall) comments() (list []string) {
	for _, r := range f.rules {
		list = append(list, r.Comment)
	}

	return list
}

// TestProxmoxFirewall: rules of others stay, new ones come before old ones go, and what is as planned is not touched. A
// firewall that keeps this computer out is switched off again, and one without effect is not said to be on.
func TestProxmoxFirewall(t *testing.T) {
	t.Parallel()

	const on, added, removed = "PUT /options", "POST /rules", "DELETE /rules/"

	apid := request.FirewallRule{Type: "in", Action: "ACCEPT", Proto: "tcp", DPort: "50000", Source: "10.0.9.0/24", Comment: "apid"}
	etcd := request.FirewallRule{Type: "in", Action: "ACCEPT", Proto: "tcp", DPort: "2379:2380", Source: "10.0.0.0/24", Comment: "etcd"}
	marked := func(r request.FirewallRule) firewallRule {
		r.Comment = ownership.FirewallRule(r.Comment)

		return firewallRule{FirewallRule: r, Enable: 1}
	}
	mine := firewallRule{FirewallRule: request.FirewallRule{Type: "in", Action: "ACCEPT", Comment: "mine"}, Enable: 1}
	off := marked(apid)
	off.Enable = 0
	isOn := map[string]any{"enable": 1, "policy_in": "DROP", "dhcp": 1, "ndp": 1, "macfilter": 1, "log_level_in": "info"}
	firstApid, firstEtcd := marked(apid).Comment, marked(etcd).Comment

	for name, test := range map[string]struct {
		fake       fakeFirewall
		removal    bool
		configured bool
		reaches    []bool // whether this computer gets in, one attempt after the other
		want       []string
		calls      []string
		options    string
		err, says  string
	}{
		"a first one": {
			fake: fakeFirewall{options: map[string]any{"log_level_in": "info"}, rules: []firewallRule{mine}},
			want: []string{firstApid, firstEtcd, "mine"}, calls: []string{added, added, on}, says: "is on",
			options: "map[dhcp:1 enable:1 log_level_in:info macfilter:1 ndp:1 policy_in:DROP]",
		},
		"as planned": {
			fake: fakeFirewall{options: isOn, rules: []firewallRule{marked(apid), mine, marked(etcd)}},
			want: []string{firstApid, "mine", firstEtcd}, configured: true, reaches: []bool{true}, says: "as planned",
		},
		"the firewall of the data centre is off": {
			fake: fakeFirewall{options: map[string]any{}, off: true}, configured: true,
			want: []string{firstApid, firstEtcd}, calls: []string{added, added, on},
			says: "has no effect: that of the data centre is off",
		},
		"as planned, and that of the data centre is off": {
			fake:       fakeFirewall{options: isOn, rules: []firewallRule{marked(apid), marked(etcd)}, off: true},
			configured: true, want: []string{firstApid, firstEtcd}, says: "has no effect: that of the data centre is off",
		},
		"another rule, one that was switched off, and one that is left": {
			fake: fakeFirewall{options: isOn, rules: []firewallRule{off, mine, marked(request.FirewallRule{Comment: "old"})}},
			want: []string{firstApid, firstEtcd, "mine"}, calls: []string{added, added, removed + "4", removed + "2"}, says: "is on, with new",
			configured: true, reaches: []bool{true, true},
		},
		"another order, on which a security group may depend": {
			fake: fakeFirewall{options: isOn, rules: []firewallRule{marked(etcd), marked(apid)}},
			want: []string{firstApid, firstEtcd}, calls: []string{added, added, removed + "3", removed + "2"},
		},
		"this computer does not get in": {
			fake: fakeFirewall{options: map[string]any{}}, configured: true, reaches: []bool{true, false, true},
			want: []string{firstApid, firstEtcd}, calls: []string{added, added, on, on},
			options: "map[dhcp:1 enable:0 macfilter:1 ndp:1 policy_in:DROP]",
			err:     "one-cp-1: Proxmox' firewall did not let this computer in to port 50000, and is off again",
		},
		"the machine restarts at that moment": {
			fake: fakeFirewall{options: map[string]any{}}, configured: true, reaches: []bool{true, false, false},
			want: []string{firstApid, firstEtcd}, calls: []string{added, added, on, on, on}, says: "which is therefore on again",
			options: "map[dhcp:1 enable:1 macfilter:1 ndp:1 policy_in:DROP]",
		},
		"the machine did not answer before": {
			fake: fakeFirewall{options: map[string]any{}}, configured: true, reaches: []bool{false},
			want: []string{firstApid, firstEtcd}, calls: []string{added, added, on},
		},
		"removal": {
			fake: fakeFirewall{options: isOn, rules: []firewallRule{marked(apid), mine, marked(etcd)}}, removal: true,
			want: []string{"mine"}, calls: []string{on, removed + "2", removed + "0"}, options: "map[log_level_in:info]", says: "is off",
		},
		"removal where somebody else's is on": {
			fake: fakeFirewall{options: isOn, rules: []firewallRule{mine}}, removal: true, want: []string{"mine"},
		},
		"removal of a machine's whose VMID another one has": {
			fake: fakeFirewall{name: "web-1", rules: []firewallRule{marked(apid)}}, removal: true, want: []string{firstApid},
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
			fake.t, fake.options = t, maps.Clone(test.fake.options)

			if fake.name == "" {
				fake.name = "one-cp-1"
			}

			var said strings.Builder

			cmd := &cobra.Command{}
			cmd.SetErr(&said)

			h, err := openHost(t.Context(), cmd, fake.settings("", fake.handle), "")
			require.NoError(t, err)

			attempts := test.reaches
			setter := firewallSetter{
				proxmoxHost: h,
				req: &firewallRequest{request.Firewall{
					VMID: 2000, Machine: "one-cp-1", Address: netip.MustParseAddr("10.0.0.10"), Configured: test.configured,
					Rules: []request.FirewallRule{apid, etcd},
				}},
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

			var calls []string
			for _, call := range fake.calls {
				calls = append(calls, strings.Replace(call, "/nodes/pve2/qemu/2000/firewall", "", 1))
			}

			assert.Equal(t, test.want, fake.comments())
			assert.Equal(t, test.calls, calls)
			assert.Contains(t, said.String(), test.says)
			assert.Empty(t, attempts)

			if test.options != "" {
				assert.Equal(t, test.options, fmt.Sprint(fake.options))
			}
		})
	}
}
