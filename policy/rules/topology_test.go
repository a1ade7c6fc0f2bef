package rules

import (
	"testing"

	"talos-proxmox/internal/tokens"
)

func threeHosts() *settings {
	s := testSettings
	s.Hosts = map[string]capacity{"pve1": {}, "pve2": {}, "pve3": {}}

	return &s
}

func TestControlPlaneCount(t *testing.T) {
	t.Parallel()

	one, two, three := cp("one-cp-1", "pve1", 2000), cp("one-cp-2", "pve2", 2001), cp("one-cp-3", "pve3", 2002)
	cluster := newResource(tokens.TalosCluster, "one", props{})
	node := newResource("talos-proxmox:node:TalosNode", "one-cp-1", props{}).in(cluster)

	runCases(t, "control-plane-count", map[string]policyCase{
		"one is enough": {plan: []resource{one}},
		"three are":     {plan: []resource{one, two, three}},
		"two are refused": {
			plan: []resource{one, two},
			want: []string{"cluster one: 2 control planes (one-cp-1, one-cp-2) tolerate no more failures than 1: plan 3"},
		},
		"seven are refused": {
			plan: []resource{one, two, three, cp("a", "pve1", 1), cp("b", "pve1", 2), cp("c", "pve1", 3), cp("d", "pve1", 4)},
			want: []string{"7 control planes (a, b, c, d, one-cp-1, one-cp-2, one-cp-3) slow down every write to etcd: plan 5"},
		},
		"four are refused": {
			plan: []resource{one, two, three, cp("a", "pve1", 1)},
			want: []string{"4 control planes (a, one-cp-1, one-cp-2, one-cp-3) tolerate no more failures than 3: plan 5"},
		},
		"six are refused": {
			plan: []resource{one, two, three, cp("a", "pve1", 1), cp("b", "pve1", 2), cp("c", "pve1", 3)},
			want: []string{"6 control planes (a, b, c, one-cp-1, one-cp-2, one-cp-3) tolerate no more failures than 5: plan 5"},
		},
		"a cluster without one is refused": {
			plan: []resource{worker("w", "pve1", 3000)},
			want: []string{"cluster one: no control plane: plan one, or tag control planes with controlplane"},
		},
		"machines that are no Talos nodes count nothing": {
			plan: []resource{newResource(tokens.VirtualMachine, "debian", props{"tags": []string{"controlplane"}})},
		},
		"templates count nothing": {plan: []resource{one, two.with(props{"template": true})}},
		"a role that is not known yet leaves it open": {
			plan: []resource{one, two, three.with(props{"tags": unknown, "template": false}).in(node)},
			want: []string{"2 control planes"},
		},
		"the cluster is that of the component around it": {
			plan: []resource{cluster, node, one.in(node), two.in(node)}, want: []string{"cluster one: 2"},
		},
		"an unknown role in the component leaves it open": {
			plan: []resource{cluster, node, one.in(node), two.with(props{"tags": unknown}).in(node)},
		},
		"two clusters are counted apart": {plan: []resource{one, otherControlPlane("two-cp-1", 2100)}},
		"secret tags are judged, and the message shows none": {
			plan: []resource{one, two.with(props{"tags": secret{[]string{"cluster-one", "talos", "controlplane"}}})},
			want: []string{"2 control planes"},
		},
	})
}

func otherControlPlane(name string, id int) resource {
	return node(name, "pve1", id, []string{"cluster-two", "controlplane", "talos"})
}

func TestControlPlaneSpread(t *testing.T) {
	t.Parallel()

	runCases(t, "control-plane-spread", map[string]policyCase{
		"three on three hosts": {
			settings: threeHosts(), plan: []resource{cp("1", "pve1", 2000), cp("2", "pve2", 2001), cp("3", "pve3", 2002)},
		},
		"two of three on one host where there are three": {
			settings: threeHosts(), plan: []resource{cp("1", "pve1", 2000), cp("2", "pve1", 2001), cp("3", "pve3", 2002)},
			want: []string{"cluster one: 2 control planes (1, 2) on host pve1, where 1 would do with the 3 hosts of the stack (pve1, pve2, pve3)"},
		},
		"three on the two hosts there are": {
			plan: []resource{cp("1", "pve1", 2000), cp("2", "pve2", 2001), cp("3", "pve1", 2002)},
		},
		"three on one of two hosts": {
			plan: []resource{cp("1", "pve1", 2000), cp("2", "pve1", 2001), cp("3", "pve1", 2002), worker("w", "pve2", 3000)},
			want: []string{"3 control planes"},
		},
		"three on the only host": {
			plan: []resource{cp("1", "pve1", 2000), cp("2", "pve1", 2001), cp("3", "pve1", 2002)},
		},
		"hosts that are not known yet": {
			settings: threeHosts(),
			plan: []resource{
				cp("1", "", 2000).with(props{"nodeName": unknown}), cp("2", "", 1).with(props{"nodeName": unknown}),
				cp("3", "pve1", 2),
			},
		},
		"a host name that is a number": {
			settings: threeHosts(),
			plan: []resource{
				cp("1", "", 2000).with(props{"nodeName": 5}), cp("2", "", 1).with(props{"nodeName": 5}), cp("3", "pve1", 2),
			},
		},
		"workers may share a host": {
			settings: threeHosts(),
			plan:     []resource{cp("1", "pve1", 2000), worker("2", "pve1", 3000), worker("3", "pve1", 3001)},
		},
		"a secret host's name is not shown": {
			settings: threeHosts(),
			plan: []resource{
				cp("1", "", 2000).with(props{"nodeName": secret{"pve1"}}), cp("2", "pve1", 1), cp("3", "pve2", 2),
			},
			want: []string{"on host [secret]"},
		},
	})
}
