package rules

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSupportedVersions(t *testing.T) {
	t.Parallel()

	install := func(image string) resource {
		return nodeConfiguration("machine:\n  install:\n    image: " + image + "\n")
	}
	want := []string{"n: the installer, which a patch sets, has no version, or no supported one: omit it"}

	runCases(t, "supported-versions", map[string]policyCase{
		"an installer of a supported version": {
			plan: []resource{install("factory.talos.dev/nocloud-installer/ab:v1.12.6")},
		},
		"an installer of an old version": {
			plan: []resource{install("factory.talos.dev/nocloud-installer/ab:v1.5.0")}, want: want,
		},
		"an installer without a version": {plan: []resource{install("ghcr.io/siderolabs/installer")}, want: want},
		"the latest installer":           {plan: []resource{install("ghcr.io/siderolabs/installer:latest")}, want: want},
		"an installer by digest": {
			plan: []resource{
				install("ghcr.io/siderolabs/installer@sha256:abcd"), install("ghcr.io/siderolabs/installer:v1.12.6@sha256:abcd"),
			},
		},
		"in a document": {
			plan: []resource{nodeConfiguration("kind: UnattendedInstallConfig\ninstaller: {image: \"ghcr.io/siderolabs/installer\"}\n")}, want: want,
		},
		"a registry with a port": {plan: []resource{install("127.0.0.1:8080/nocloud-installer/ab")}, want: want},
	})

	found := evaluate(t, "supported-versions", testSettings, nil, install("marker/installer:v1.4.0"))
	assert.NotContains(t, strings.Join(found, "\n"), "marker", "the image may be encrypted")
}
