package rules

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/internal/tokens"
)

func TestSupportedVersions(t *testing.T) {
	t.Parallel()

	install := func(image string) resource {
		return newResource(tokens.ConfigurationApply, "c", props{"configPatches": []any{"machine:\n  install:\n    image: " + image + "\n"}})
	}

	runCases(t, "supported-versions", map[string]policyCase{
		"an installer of a supported version": {
			plan: []resource{install("factory.talos.dev/nocloud-installer/ab:v1.12.6")},
		},
		"an installer of an old version": {
			plan: []resource{install("factory.talos.dev/nocloud-installer/ab:v1.5.0")},
			want: []string{"version v1.5.0 of Talos is not supported"},
		},
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
				newResource(
					tokens.ConfigurationApply, "c",
					props{"machineConfigurationInput": secret{"machine: {install: {image: \"x/installer:v1.4.0\"}}"}},
				),
			},
			want: []string{"version v1.4.0 of Talos is not supported"},
		},
		"an installer in an encrypted patch": {
			plan: []resource{
				newResource(
					tokens.ConfigurationApply, "c",
					props{"configPatches": secret{[]any{"machine: {install: {image: 'marker/installer:v1.4.0'}}"}}},
				),
			},
			want: []string{"c: machine.install.image, in an encrypted patch, is of no supported version"},
		},
	})

	encrypted := newResource(
		tokens.ConfigurationApply, "c",
		props{"configPatches": secret{[]any{"machine: {install: {image: 'marker/installer:v1.4.0'}}"}}},
	)
	assert.NotContains(t, strings.Join(evaluate(t, "supported-versions", testSettings, nil, encrypted), "\n"), "marker")
}
