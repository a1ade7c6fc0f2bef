package rules

import (
	"testing"

	"talos-proxmox/internal/tokens"
)

func TestNoCloudInitOnTalos(t *testing.T) {
	t.Parallel()

	init := func(p props) props { return props{"initialization": p} }
	account := func(p props) props { return init(props{"userAccount": p}) }

	checkAll(t, "no-cloud-init-on-talos", map[string]ruling{
		"addresses only": {plan: []resource{cp("a", "p", 1).with(props{"initialization": props{"ipConfigs": []any{props{"ipv4": props{"address": "10.0.0.1/24"}}}}})}},
		"empty as the provider has them": {
			plan: []resource{
				cp("a", "p", 1).with(init(props{"userDataFileId": "", "vendorDataFileId": "", "userAccount": nil})),
			},
		},
		"user data": {
			plan: []resource{cp("a", "p", 1).with(init(props{"userDataFileId": "local:snippets/u.yaml"}))},
			want: []string{"a: initialization.userDataFileId is set on a Talos machine: leave it out"},
		},
		"vendor data": {
			plan: []resource{cp("a", "p", 1).with(init(props{"vendorDataFileId": "local:snippets/u.yaml"}))},
			want: []string{"vendorDataFileId"},
		},
		"SSH keys and a user": {
			plan: []resource{cp("a", "p", 1).with(account(props{"username": "root", "keys": []string{"ssh-ed25519 AAAA"}}))},
			want: []string{"initialization.userAccount.username and initialization.userAccount.keys"},
		},
		"a secret password, unmentioned": {
			plan: []resource{cp("a", "p", 1).with(account(props{"password": secret{"hunter2"}}))},
			want: []string{"a: initialization.userAccount.password is set"},
		},
		"a Debian machine": {plan: []resource{res(tokens.VirtualMachine, "d", account(props{"username": "debian"}))}},
		"not known yet": {
			plan: []resource{
				cp("a", "p", 1).with(init(props{"userDataFileId": unknown, "userAccount": unknown})),
				cp("b", "p", 1).with(props{"initialization": unknown}),
			},
		},
		"tags not known yet": {
			plan: []resource{cp("a", "p", 1).with(init(props{"userDataFileId": "x"})).with(props{"tags": unknown})},
		},
		"a node by its component, without tags": {
			plan: []resource{
				res("talos-proxmox:node:TalosNode", "n", props{}),
				res(tokens.VirtualMachine, "a", init(props{"userDataFileId": "x"})).in(res("talos-proxmox:node:TalosNode", "n", props{})),
			},
			want: []string{"a: "},
		},
		"of another kind": {
			plan: []resource{
				cp("a", "p", 1).with(init(props{"userDataFileId": 5, "userAccount": "root"})),
				cp("b", "p", 1).with(props{"initialization": 5}),
			},
		},
	})
}

const plainSchematic = "customization: {}\n"

func TestAgentNeedsExtension(t *testing.T) {
	t.Parallel()

	const withAgent = "customization:\n    systemExtensions:\n        officialExtensions:\n            - siderolabs/qemu-guest-agent\n"

	component := res("talos-proxmox:node:TalosNode", "n", props{})
	schematic := func(text any) resource { return res(tokens.Schematic, "s", props{"schematic": text}) }
	vm := func(enabled any) resource {
		return cp("a", "p", 1).with(props{"agent": props{"enabled": enabled}}).in(component)
	}
	install := func(id string) resource {
		return res(
			tokens.ConfigurationApply, "a-c",
			props{
				"configPatches": []any{"machine:\n  install:\n    image: factory.talos.dev/nocloud-installer/" + id + ":v1.12.6\n"},
			},
		).in(component)
	}

	checkAll(t, "agent-needs-extension", map[string]ruling{
		"with its extension": {
			plan: []resource{component, schematic(withAgent), vm(true), install(digest(withAgent))},
		},
		"without": {
			plan: []resource{component, schematic(plainSchematic), vm(true), install(digest(plainSchematic))},
			want: []string{"a: agent.enabled is true, and its image has no siderolabs/qemu-guest-agent"},
		},
		"without, and disabled": {
			plan: []resource{component, schematic(plainSchematic), vm(false), install(digest(plainSchematic))},
		},
		"an image of elsewhere": {plan: []resource{component, schematic(plainSchematic), vm(true), install("0123")}},
		"a schematic not known yet": {
			plan: []resource{component, schematic(unknown), vm(true), install(digest(plainSchematic))},
		},
		"an agent not known yet": {
			plan: []resource{component, schematic(plainSchematic), vm(unknown), install(digest(plainSchematic))},
		},
		"patches not known yet": {plan: []resource{
			component, schematic(plainSchematic), vm(true),
			res(tokens.ConfigurationApply, "b", props{"configPatches": unknown}).in(component),
		}},
		"another machine's configuration": {
			plan: []resource{
				component, schematic(plainSchematic), vm(true),
				res(tokens.ConfigurationApply, "b", install(digest(plainSchematic)).Properties.props()),
			},
		},
		"a hostile schematic": {plan: []resource{component, schematic("{{{"), schematic(4), vm(true), install("x")}},
		"a secret patch": {
			plan: []resource{component, schematic(plainSchematic), vm(true), secretPatches(install(digest(plainSchematic)))},
			want: []string{"a: "},
		},
	})
}

func secretPatches(r resource) resource {
	r.Properties = value{r.Properties.property.WithSecret(true)}

	return r
}

// props are the texts of a test's configuration.
func (v value) props() props { return props{"configPatches": v.at("configPatches").texts().Value} }
