package talos

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestFactoryAddresses(t *testing.T) {
	t.Parallel()

	const id = "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515"
	for name, test := range map[string]struct {
		factory               Factory
		kind                  Kind
		image, iso, installer string
	}{
		"the public factory": {
			Factory{},
			Kind{Platform: "nocloud"},
			"https://factory.talos.dev/image/" + id + "/v1.12.6/nocloud-amd64.raw.zst",
			"https://factory.talos.dev/image/" + id + "/v1.12.6/nocloud-amd64.iso",
			"factory.talos.dev/nocloud-installer/" + id + ":v1.12.6",
		},
		"a private one with a port and a trailing slash": {
			Factory{URL: "http://127.0.0.9:8080/"},
			Kind{Platform: "nocloud"},
			"http://127.0.0.9:8080/image/" + id + "/v1.12.6/nocloud-amd64.raw.zst",
			"http://127.0.0.9:8080/image/" + id + "/v1.12.6/nocloud-amd64.iso",
			"127.0.0.9:8080/nocloud-installer/" + id + ":v1.12.6",
		},
		"Secure Boot": {
			Factory{},
			Kind{Platform: "nocloud", SecureBoot: true},
			"https://factory.talos.dev/image/" + id + "/v1.12.6/nocloud-amd64-secureboot.raw.zst",
			"https://factory.talos.dev/image/" + id + "/v1.12.6/nocloud-amd64-secureboot.iso",
			"factory.talos.dev/nocloud-installer-secureboot/" + id + ":v1.12.6",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.image, test.factory.ImageURL(id, "v1.12.6", test.kind))
			assert.Equal(t, test.iso, test.factory.ISOURL(id, "v1.12.6", test.kind))
			assert.Equal(
				t, strings.TrimSuffix(test.iso, ".iso")+".qcow2", test.factory.QCOW2URL(id, "v1.12.6", test.kind),
			)
			assert.Equal(t, test.installer, test.factory.Installer(id, "v1.12.6", test.kind))
			assert.Equal(t, test.kind.SecureBoot, IsSecureBoot(test.installer))
		})
	}
}
