package talos

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSchematicID(t *testing.T) {
	t.Parallel()

	// Ids the public Image Factory gives, from its own tests and documentation.
	for name, test := range map[string]struct {
		schematic Schematic
		want      string
	}{
		"plain Talos": {Schematic{}, "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"},
		"empty lists are plain Talos": {
			Schematic{Extensions: []string{}, KernelArgs: []string{}, META: []MetaValue{}},
			"376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba",
		},
		"guest agent": {
			Schematic{Extensions: []string{"siderolabs/qemu-guest-agent"}},
			"ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515",
		},
		"guest agent by its short name, twice": {
			Schematic{Extensions: []string{"qemu-guest-agent", "siderolabs/qemu-guest-agent"}},
			"ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515",
		},
		"kernel arguments": {
			Schematic{KernelArgs: []string{"noapic", "nolapic"}},
			"9cba8e32753f91a16c1837ab8abf356af021706ef284aef07380780177d9a06c",
		},
		"META value": {
			Schematic{META: []MetaValue{{Key: 10, Value: "foo"}}},
			"d308a2a5ee2277bed5fbaa104fcbc8d59122abfa737df987a95b4ca763459a7f",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.want, test.schematic.ID())
		})
	}
}

func TestSchematicYAML(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		schematic Schematic
		want      string
	}{
		"no customization": {Schematic{}, "customization: {}\n"},
		"everything, extensions and META sorted, arguments not": {
			Schematic{
				Extensions: []string{"util-linux-tools", "siderolabs/iscsi-tools"},
				KernelArgs: []string{"net.ifnames=0", "-console", "console=ttyS0"},
				META:       []MetaValue{{Key: 12, Value: "b"}, {Key: 10, Value: "addresses:\n  - 10.0.0.1/24\n"}},
			},
			`customization:
    extraKernelArgs:
        - net.ifnames=0
        - -console
        - console=ttyS0
    meta:
        - key: 10
          value: |
            addresses:
              - 10.0.0.1/24
        - key: 12
          value: b
    systemExtensions:
        officialExtensions:
            - siderolabs/iscsi-tools
            - siderolabs/util-linux-tools
`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.want, test.schematic.YAML())
		})
	}
}

func TestSchematicDoesNotChangeItsLists(t *testing.T) {
	t.Parallel()

	schematic := Schematic{Extensions: []string{"b", "a"}, META: []MetaValue{{Key: 2}, {Key: 1}}}
	_ = schematic.ID()
	assert.Equal(t, []string{"b", "a"}, schematic.Extensions)
	assert.Equal(t, []MetaValue{{Key: 2}, {Key: 1}}, schematic.META)
}
