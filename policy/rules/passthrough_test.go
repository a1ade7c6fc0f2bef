package rules

import (
	"testing"
)

func TestNoRootOnlyFields(t *testing.T) {
	t.Parallel()

	token := props{"apiToken": secret{"pulumi@pve!talos=6f4c3a2e-0000-0000-0000-000000000000"}}
	password := props{"username": "root@pam", "password": secret{"hunter2"}}
	raw := props{"hostpcis": []any{props{"device": "hostpci0", "id": "0000:01:00"}}}

	runCases(t, "no-root-only-fields", map[string]policyCase{
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
		"USB devices with a token": {
			plan: []resource{worker("w", "p", 1).with(props{
				"usbs": []any{props{"mapping": "zigbee"}, props{"host": "spice"}, props{"host": "10c4:ea60"}},
			}).from(token)},
			want: []string{`w: usbs[2].host is the USB device "10c4:ea60": use a mapping`},
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
