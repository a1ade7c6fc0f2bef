package rules

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/internal/tokens"
)

func TestSupportedVersions(t *testing.T) {
	t.Parallel()

	cluster := func(talos, kubernetes any) resource {
		return res(tokens.TalosCluster, "one", props{"talosVersion": talos, "kubernetesVersion": kubernetes})
	}
	template := func(version any) resource {
		return res(tokens.GoldenTemplate, "t", props{"version": version, "schematicId": "ab"})
	}
	secrets := func(version any) resource { return res(tokens.Secrets, "s", props{"talosVersion": version}) }
	install := func(image string) resource {
		return res(tokens.ConfigurationApply, "c", props{"configPatches": []any{"machine:\n  install:\n    image: " + image + "\n"}})
	}

	checkAll(t, "supported-versions", map[string]ruling{
		"all pinned": {
			plan: []resource{
				cluster("v1.12.6", "v1.35.0"), template("v1.12.6"), secrets("v1.12"),
				install("factory.talos.dev/nocloud-installer/ab:v1.12.6"),
			},
		},
		"an unpinned Talos": {
			plan: []resource{cluster("v1.12", "v1.35.0")},
			want: []string{`cluster one: "v1.12" is not a version of Talos: write it in full`},
		},
		"latest Kubernetes": {
			plan: []resource{cluster("v1.12.6", "latest")}, want: []string{`"latest" is not a version of Kubernetes`},
		},
		"an old Talos": {
			plan: []resource{cluster("v1.5.0", "v1.28.0")}, want: []string{"version v1.5.0 of Talos is not supported"},
		},
		"a Kubernetes too new": {
			plan: []resource{cluster("v1.12.0", "v1.36.0")},
			want: []string{"version v1.36.0 of Kubernetes does not run on Talos v1.12.0"},
		},
		"an old template": {
			plan: []resource{template("v1.2.3")}, want: []string{"template t: version v1.2.3 of Talos is not supported"},
		},
		"a template of another system": {
			plan: []resource{res(tokens.GoldenTemplate, "t", props{"version": "13-20260712-2537", "schematicId": ""})},
		},
		"an old contract": {
			plan: []resource{secrets("v1.3")},
			want: []string{`s: talosVersion "v1.3" is not a contract of a supported version: use one of v1.11`},
		},
		"a contract in full":     {plan: []resource{secrets("v1.12.6")}},
		"secrets of no contract": {plan: []resource{secrets(nil)}, want: []string{`talosVersion ""`}},
		"an installer without a version": {
			plan: []resource{install("ghcr.io/siderolabs/installer")},
			want: []string{`c: machine.install.image is "ghcr.io/siderolabs/installer": it has no version`},
		},
		"the latest installer": {
			plan: []resource{install("ghcr.io/siderolabs/installer:latest")},
			want: []string{`"latest" is not a version of Talos`},
		},
		"an installer by digest": {
			plan: []resource{
				install("ghcr.io/siderolabs/installer@sha256:abcd"), install("ghcr.io/siderolabs/installer:v1.12.6@sha256:abcd"),
			},
		},
		"a registry with a port": {
			plan: []resource{install("127.0.0.1:8080/nocloud-installer/ab")}, want: []string{"it has no version"},
		},
		"an installer in the whole configuration, secret": {
			plan: []resource{
				res(
					tokens.ConfigurationApply, "c",
					props{"machineConfigurationInput": secret{"machine: {install: {image: \"x/installer:v1.4.0\"}}"}},
				),
			},
			want: []string{"version v1.4.0 of Talos is not supported"},
		},
		"an installer in an encrypted patch": {
			plan: []resource{
				res(
					tokens.ConfigurationApply, "c",
					props{"configPatches": secret{[]any{"machine: {install: {image: 'marker/installer:v1.4.0'}}"}}},
				),
			},
			want: []string{"c: machine.install.image, in an encrypted patch, is of no supported version"},
		},
		"a template of an ISO of nothing": {plan: []resource{template("")}},
		"not known yet": {
			plan: []resource{
				cluster(unknown, "v1.35.0"), cluster("v1.12.6", unknown), template(unknown), secrets(unknown),
				res(tokens.ConfigurationApply, "c", props{"configPatches": unknown, "machineConfigurationInput": secret{""}}),
			},
		},
		"of another kind": {
			plan: []resource{
				cluster(1, "v1.35.0"), template([]any{}), secrets(1.12),
				res(tokens.ConfigurationApply, "c", props{"configPatches": []any{5, "{{{", "- a"}, "machineConfigurationInput": 7}),
			},
		},
	})

	encrypted := res(
		tokens.ConfigurationApply, "c",
		props{"configPatches": secret{[]any{"machine: {install: {image: 'marker/installer:v1.4.0'}}"}}},
	)
	assert.NotContains(t, strings.Join(judge(t, "supported-versions", testSettings, nil, encrypted), "\n"), "marker")
}
