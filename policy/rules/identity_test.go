package rules

import (
	"testing"

	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/tokens"
)

func TestVMIDRanges(t *testing.T) {
	t.Parallel()

	own := testSettings
	own.Ranges = map[spec.RangeKind]spec.VMIDRange{spec.RangeControlPlanes: {First: 100, Last: 199}}
	gpu := props{"hostpcis": []any{props{"device": "hostpci0", "mapping": "gpu"}}}

	checkAll(t, "vmid-ranges", map[string]ruling{
		"each in its own": {
			plan: []resource{
				cp("c", "pve1", 2000), worker("w", "pve1", 3999), worker("g", "pve1", 4000).with(gpu),
				res(tokens.GoldenTemplate, "t", props{"vmid": 901}),
			},
		},
		"a control plane among the workers": {
			plan: []resource{cp("c", "pve1", 3000)},
			want: []string{"c: VMID 3000 is outside 2000-2999, the range of controlPlanes: choose one inside it, or change talos-proxmox:vmidRanges.controlPlanes"},
		},
		"a GPU worker among the workers": {
			plan: []resource{worker("g", "pve1", 3000).with(gpu)}, want: []string{"g: VMID 3000 is outside 4000-4999"},
		},
		"a template among the machines": {
			plan: []resource{res(tokens.GoldenTemplate, "t", props{"vmid": 2000})}, want: []string{"t: VMID 2000 is outside 900-999"},
		},
		"a VM that is a template": {
			plan: []resource{cp("t", "pve1", 2000).with(props{"template": true})}, want: []string{"range of templates"},
		},
		"a template of an ISO has no VMID": {plan: []resource{res(tokens.GoldenTemplate, "t", props{"vmid": 0})}},
		"the stack's own ranges":           {settings: &own, plan: []resource{cp("c", "pve1", 150)}},
		"outside the stack's own ranges": {
			settings: &own, plan: []resource{cp("c", "pve1", 2000)}, want: []string{"100-199"},
		},
		"a VMID that Proxmox will choose": {
			plan: []resource{cp("c", "pve1", 0).with(props{"vmId": unknown}), worker("w", "pve1", 0).with(props{"vmId": nil})},
		},
		"a role that is not known": {
			plan: []resource{
				cp("c", "pve1", 77).with(props{"tags": unknown}), worker("w", "pve1", 77).with(props{"hostpcis": unknown}),
			},
		},
		"a machine without a role":    {plan: []resource{res(tokens.VirtualMachine, "debian", props{"vmId": 105})}},
		"a VMID that is not a number": {plan: []resource{cp("c", "pve1", 0).with(props{"vmId": "many"})}},
		"a VMID in words of digits": {
			plan: []resource{cp("c", "pve1", 0).with(props{"vmId": "7777"})}, want: []string{"VMID 7777"},
		},
		"a VMID marked secret is judged, unmentioned": {
			plan: []resource{cp("c", "pve1", 0).with(props{"vmId": secret{7777}})}, want: []string{"VMID [secret] is outside"},
		},
	})
}

func TestUniqueVMIDs(t *testing.T) {
	t.Parallel()

	checkAll(t, "unique-vmids", map[string]ruling{
		"all different": {
			plan: []resource{cp("a", "pve1", 2000), cp("b", "pve1", 2001), res(tokens.GoldenTemplate, "t", props{"vmid": 900})},
		},
		"two machines with one": {
			plan: []resource{cp("b", "pve2", 2000), cp("a", "pve1", 2000)},
			want: []string{"b: VMID 2000 is that of a too: give one of them another"},
		},
		"a machine and a template": {
			plan: []resource{cp("a", "pve2", 900), res(tokens.GoldenTemplate, "t", props{"vmid": 900})},
			want: []string{"t: VMID 900 is that of a too"},
		},
		"two that Proxmox will choose": {
			plan: []resource{cp("a", "pve2", 0), cp("b", "pve2", 0), cp("c", "pve2", 0).with(props{"vmId": unknown})},
		},
		"two templates of ISOs": {
			plan: []resource{res(tokens.GoldenTemplate, "a", props{"vmid": 0}), res(tokens.GoldenTemplate, "b", props{"vmid": 0})},
		},
		"VMIDs that are lists": {
			plan: []resource{cp("a", "pve2", 0).with(props{"vmId": []any{1}}), cp("b", "pve2", 0).with(props{"vmId": []any{1}})},
		},
		"a secret one is not shown": {
			plan: []resource{cp("a", "p", 2000), cp("b", "p", 0).with(props{"vmId": secret{2000}})},
			want: []string{"b: VMID [secret]"},
		},
		"three with one are two reports": {
			plan: []resource{cp("a", "p", 2000), cp("b", "p", 2000), cp("c", "p", 2000)}, want: []string{"b: ", "c: "},
		},
	})
}

func card(mac any) props { return props{"networkDevices": []any{props{"macAddress": mac}}} }

func TestUniqueMACs(t *testing.T) {
	t.Parallel()

	checkAll(t, "unique-macs", map[string]ruling{
		"all different": {
			plan: []resource{cp("a", "p", 1).with(card("02:00:00:00:00:01")), cp("b", "p", 2).with(card("02:00:00:00:00:02"))},
		},
		"two machines with one": {
			plan: []resource{cp("a", "p", 1).with(card("02:00:00:00:00:0A")), cp("b", "p", 2).with(card("02:00:00:00:00:0a"))},
			want: []string{"b: MAC address 02:00:00:00:00:0a is that of a too"},
		},
		"one machine with it twice": {
			plan: []resource{
				cp("a", "p", 1).with(
					props{"networkDevices": []any{props{"macAddress": "02:00:00:00:00:01"}, props{"macAddress": "02:00:00:00:00:01"}}},
				),
			},
			want: []string{"a: MAC"},
		},
		"cards without one": {
			plan: []resource{cp("a", "p", 1).with(card(nil)), cp("b", "p", 2).with(card(nil)), cp("c", "p", 3).with(card(""))},
		},
		"cards not known yet": {
			plan: []resource{
				cp("a", "p", 1).with(card(unknown)), cp("b", "p", 2).with(card(unknown)),
				cp("c", "p", 3).with(props{"networkDevices": unknown}),
			},
		},
		"cards that are a number": {
			plan: []resource{cp("a", "p", 1).with(props{"networkDevices": 3}), cp("b", "p", 1).with(card(3))},
		},
		"a secret one": {
			plan: []resource{
				cp("a", "p", 1).with(card("02:00:00:00:00:0a")), cp("b", "p", 2).with(card(secret{"02:00:00:00:00:0a"})),
			},
			want: []string{"MAC address [secret]"},
		},
	})
}

func address(v any) props {
	return props{"initialization": props{"ipConfigs": []any{props{"ipv4": props{"address": v}}}}}
}

func TestUniqueAddresses(t *testing.T) {
	t.Parallel()

	checkAll(t, "unique-addresses", map[string]ruling{
		"all different": {
			plan: []resource{cp("a", "p", 1).with(address("10.0.0.1/24")), cp("b", "p", 2).with(address("10.0.0.2/24"))},
		},
		"two machines with one": {
			plan: []resource{cp("a", "p", 1).with(address("10.0.0.1/24")), cp("b", "p", 2).with(address("10.0.0.1/16"))},
			want: []string{"b: address 10.0.0.1 is that of a too"},
		},
		"two configurations for one node": {
			plan: []resource{
				res(tokens.ConfigurationApply, "a", props{"node": "10.0.0.1"}), res(tokens.ConfigurationApply, "b", props{"node": "10.0.0.1"}),
			},
			want: []string{"b: address 10.0.0.1"},
		},
		"a machine and its configuration": {
			plan: []resource{
				cp("a", "p", 1).with(address("10.0.0.1/24")), res(tokens.ConfigurationApply, "a-c", props{"node": "10.0.0.1"}),
			},
		},
		"two by DHCP": {
			plan: []resource{cp("a", "p", 1).with(address("dhcp")), cp("b", "p", 2).with(address("dhcp"))},
		},
		"addresses not known yet": {
			plan: []resource{cp("a", "p", 1).with(address(unknown)), cp("b", "p", 2).with(props{"initialization": unknown})},
		},
		"addresses of another kind": {
			plan: []resource{cp("a", "p", 1).with(address(1)), cp("b", "p", 2).with(props{"initialization": "none"})},
		},
		"one block instead of a list": {
			plan: []resource{
				cp("a", "p", 1).with(address("10.0.0.1/24")),
				cp("b", "p", 2).with(props{"initialization": props{"ipConfigs": props{"ipv4": props{"address": "10.0.0.1/24"}}}}),
			},
			want: []string{"b: "},
		},
		"a secret one": {
			plan: []resource{cp("a", "p", 1).with(address("10.0.0.1")), cp("b", "p", 2).with(address(secret{"10.0.0.1"}))},
			want: []string{"address [secret]"},
		},
	})
}
