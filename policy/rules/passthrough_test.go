package rules

import (
	"testing"

	"talos-proxmox/internal/tokens"
)

func TestNoRootOnlyFields(t *testing.T) {
	t.Parallel()

	token := props{"apiToken": secret{"pulumi@pve!talos=6f4c3a2e-0000-0000-0000-000000000000"}}
	password := props{"username": "root@pam", "password": secret{"hunter2"}}
	raw := props{"hostpcis": []any{props{"device": "hostpci0", "id": "0000:01:00"}}}

	checkAll(t, "no-root-only-fields", map[string]ruling{
		"a mapping with a token": {plan: []resource{worker("w", "p", 1).with(gpuOf("gpu")).from(token)}},
		"a raw id with a token": {
			plan: []resource{worker("w", "p", 1).with(raw).from(token)},
			want: []string{`w: hostpcis[0].id is the raw PCI id "0000:01:00": use a mapping`},
		},
		"a raw id with a password": {plan: []resource{worker("w", "p", 1).with(raw).from(password)}},
		"no provider at all":       {plan: []resource{worker("w", "p", 1).with(raw)}},
		"a token not known yet": {
			plan: []resource{worker("w", "p", 1).with(raw).from(props{"apiToken": unknown})},
		},
		"a token that is unknown and secret": {
			plan: []resource{worker("w", "p", 1).with(raw).from(props{"apiToken": secret{""}})},
		},
		"an id not known yet": {
			plan: []resource{
				worker("w", "p", 1).with(props{"hostpcis": []any{props{"id": unknown}}}).from(token),
				worker("v", "p", 1).with(props{"hostpcis": unknown}).from(token),
			},
		},
		"KVM arguments": {
			plan: []resource{worker("w", "p", 1).with(props{"kvmArguments": "-cpu host"}).from(token)},
			want: []string{`kvmArguments is "-cpu host"`},
		},
		"empty as the provider has them": {
			plan: []resource{
				worker("w", "p", 1).with(
					props{"kvmArguments": "", "cpu": props{"affinity": ""}, "memory": props{"hugepages": ""}},
				).from(token),
			},
		},
		"affinity, architecture, hugepages, hook script and ROM": {
			plan: []resource{worker("w", "p", 1).with(props{
				"cpu":              props{"affinity": "0-3", "architecture": "x86_64"},
				"memory":           props{"hugepages": "1024"},
				"hookScriptFileId": "local:snippets/x",
				"hostpcis":         []any{props{"mapping": "gpu", "romFile": "v.rom"}},
			}).from(token)},
			want: []string{"hostpcis[0].romFile", "cpu.affinity", "cpu.architecture", "memory.hugepages", "hookScriptFileId"},
		},
		"devices of another kind": {
			plan: []resource{worker("w", "p", 1).with(props{"hostpcis": "all", "cpu": 4, "kvmArguments": []any{1}}).from(token)},
		},
		"a secret is not shown": {
			plan: []resource{worker("w", "p", 1).with(props{"kvmArguments": secret{"-smbios type=11"}}).from(token)},
			want: []string{`kvmArguments is "[secret]"`},
		},
	})
}

func gpuOf(mapping any) props {
	return props{"hostpcis": []any{props{"device": "hostpci0", "mapping": mapping}}}
}

func TestNoBallooningWithPassthrough(t *testing.T) {
	t.Parallel()

	floating := func(v any) props { return props{"memory": props{"dedicated": 4096, "floating": v}} }

	checkAll(t, "no-ballooning-with-passthrough", map[string]ruling{
		"a device and fixed memory": {plan: []resource{worker("w", "p", 1).with(gpuOf("gpu"))}},
		"a balloon and no device":   {plan: []resource{worker("w", "p", 1).with(floating(2048))}},
		"a balloon with a device": {
			plan: []resource{worker("w", "p", 1).with(gpuOf("gpu")).with(floating(2048))},
			want: []string{"w: memory.floating is 2048 MiB, and hostpci0 is passed through: set memory.floating to 0"},
		},
		"a balloon not known yet": {
			plan: []resource{worker("w", "p", 1).with(gpuOf("gpu")).with(floating(unknown))},
		},
		"devices not known yet": {
			plan: []resource{worker("w", "p", 1).with(props{"hostpcis": unknown}).with(floating(2048))},
		},
		"a device whose name is not known yet": {
			plan: []resource{worker("w", "p", 1).with(gpuOf(unknown)).with(floating(2048))}, want: []string{"w: "},
		},
		"memory of another kind": {
			plan: []resource{worker("w", "p", 1).with(gpuOf("gpu")).with(props{"memory": "much"})},
		},
		"a secret size is not shown": {
			plan: []resource{worker("w", "p", 1).with(gpuOf("gpu")).with(floating(secret{2048}))},
			want: []string{"memory.floating is [secret] MiB"},
		},
	})
}

func TestPCIMappingOnce(t *testing.T) {
	t.Parallel()

	mapping := func(maps any) resource { return res(tokens.PCIMapping, "gpu", props{"name": "gpu", "maps": maps}) }
	on := func(hosts ...string) resource {
		var maps []any
		for _, host := range hosts {
			maps = append(maps, props{"node": host})
		}

		return mapping(maps)
	}
	a, b := worker("a", "pve1", 4000).with(gpuOf("gpu")), worker("b", "pve1", 4001).with(gpuOf("gpu"))

	checkAll(t, "pci-mapping-once", map[string]ruling{
		"one machine":                {plan: []resource{a}},
		"two machines, two mappings": {plan: []resource{a, b.with(gpuOf("other"))}},
		"two machines with one": {
			plan: []resource{a, b},
			want: []string{"b: device gpu of host pve1 is given to a, b, and there is one: give one machine another device"},
		},
		"on two hosts":                         {plan: []resource{a, worker("b", "pve2", 4001).with(gpuOf("gpu"))}},
		"a mapping of two devices of the host": {plan: []resource{on("pve1", "pve1", "pve2"), a, b}},
		"three on two devices": {
			plan: []resource{on("pve1", "pve1"), a, b, worker("c", "pve1", 4002).with(gpuOf("gpu"))},
			want: []string{"c: device gpu of host pve1 is given to a, b, c, and there are 2"},
		},
		"a mapping without the host": {
			plan: []resource{on("pve2"), a}, want: []string{"a: device gpu of host pve1 is given to a, and there are 0"},
		},
		"the same raw id twice": {
			plan: []resource{
				a.with(props{"hostpcis": []any{props{"id": "0000:01:00"}}}),
				b.with(props{"hostpcis": []any{props{"id": "0000:01:00"}}}),
			},
			want: []string{"b: "},
		},
		"maps not known yet":            {plan: []resource{mapping(unknown), a, b, mapping([]any{props{"node": unknown}})}},
		"a node of a map not known yet": {plan: []resource{mapping([]any{props{"node": unknown}}), a, b}},
		"a host not known yet": {
			plan: []resource{a.with(props{"nodeName": unknown}), b.with(props{"nodeName": unknown})},
		},
		"mapping names not known yet": {plan: []resource{a.with(gpuOf(unknown)), b.with(gpuOf(unknown))}},
		"names of another kind":       {plan: []resource{a.with(gpuOf(4)), b.with(gpuOf([]any{}))}},
		"a secret one is not shown": {
			plan: []resource{a, b.with(gpuOf(secret{"gpu"}))}, want: []string{"b: device [secret]"},
		},
	})
}
