package components

import (
	"net/netip"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/enginetest"
	"talos-proxmox/internal/tokens"
)

const plainSchematic = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"

func registerTemplates(t *testing.T, o enginetest.Options, all ...GoldenTemplateArgs) (*enginetest.Recorder, error) {
	t.Helper()

	return enginetest.Run(o, func(ctx *pulumi.Context) error {
		_, _, err := templates(ctx, all...)

		return err
	})
}

func TestTalosImageRefusesAnotherSchematicID(t *testing.T) {
	t.Parallel()
	r, err := registerTemplates(t, enginetest.Options{SchematicID: "another"}, plannedTemplate("pve1"))

	require.ErrorContains(t, err, "the Image Factory gave the schematic the id another, planned was "+plainSchematic)
	assert.Empty(t, r.ByType(tokens.File), "nothing is downloaded")
}

func TestGoldenTemplateIsRebuiltOnlyWhenItsContentsChange(t *testing.T) {
	t.Parallel()

	trigger := func(stack string, change func(*GoldenTemplateArgs)) string {
		template := plannedTemplate("pve1")
		change(&template)
		r, err := registerTemplates(t, enginetest.Options{Stack: stack}, template)
		require.NoError(t, err)

		return jsonText(r.ByType(tokens.RemoteCommand)["talos-pve1-build"].Input("triggers"))
	}
	before := trigger("lab", func(*GoldenTemplateArgs) {})

	assert.Equal(t, before, trigger("lab", func(*GoldenTemplateArgs) {}))
	assert.Equal(t, before, trigger("lab", func(t *GoldenTemplateArgs) {
		t.Shell = &HostShell{Address: netip.MustParseAddr("127.1.0.12"), Port: 2222}
	}), "the connection to its host")

	for name, change := range map[string]func(*GoldenTemplateArgs){
		"its version":    func(t *GoldenTemplateArgs) { t.Talos.Version = "v1.12.7" },
		"its extensions": func(t *GoldenTemplateArgs) { t.Talos.Extensions = []string{"siderolabs/iscsi-tools"} },
		"its disk":       func(t *GoldenTemplateArgs) { t.DiskSize = 30 },
		"its datastore":  func(t *GoldenTemplateArgs) { t.Datastore = "tank" },
		"its VMID":       func(t *GoldenTemplateArgs) { t.VMID = 950 },
	} {
		assert.NotEqual(t, before, trigger("lab", change), name)
	}

	assert.NotEqual(t, before, trigger("other", func(*GoldenTemplateArgs) {}), "another stack's")
}

func TestGoldenTemplateRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()

	assertRefused(t, func() GoldenTemplateArgs {
		args := plannedTemplate("pve1")
		args.Image, args.Shell = pulumi.String("local:iso/talos.img"), &HostShell{Address: netip.MustParseAddr("127.1.0.11")}

		return args
	}, NewGoldenTemplate, map[string]invalidCase[GoldenTemplateArgs]{
		"no image": {
			func(a *GoldenTemplateArgs) { a.Image = nil },
			"image: is missing; pass the volume of a TalosImage that is kept in local on host pve1",
		},
		"an image kept elsewhere": {
			func(a *GoldenTemplateArgs) {
				a.ImageDatastore, a.Image = "tank", (&TalosImage{}).VolumeID("pve1", "tank")
			},
			"image: is missing; pass the volume of a TalosImage that is kept in tank on host pve1",
		},
		"no VMID": {
			func(a *GoldenTemplateArgs) { a.VMID = 0 }, "vmid: 0 is not a VMID; use 100 or higher, or use the source iso",
		},
		"no address of its host": {
			func(a *GoldenTemplateArgs) { a.Shell = nil },
			"shell.address: is missing; set the host's, such as 10.0.0.2",
		},
	})

	assertRefused(t, func() TalosImageArgs {
		return TalosImageArgs{Talos: Talos{Version: "v1.12.6"}, Stores: []ImageStore{{"pve1", "local"}}}
	}, NewTalosImage, map[string]invalidCase[TalosImageArgs]{
		"an image without a version": {
			func(a *TalosImageArgs) { a.Talos.Version = "" },
			`talos.version: "" cannot be used: "" is not a version of Talos: write it in full, such as v1.14.4`,
		},
		"an image without a store": {
			func(a *TalosImageArgs) { a.Stores = nil }, "stores: is empty; add at least one host and datastore",
		},
		"an unknown source": {
			func(a *TalosImageArgs) { a.Source = "tape" }, `source: "tape" is not a source; choose image, import or iso`,
		},
	})
}

// assertDialLimits expects enough attempts to bridge the restart of an SSH server or dropped connections, and few
// enough to report a dead host soon. pulumi-command makes one attempt more than the limit and waits a tenth of a second
// after the first, then half as long again each time; -1 is unlimited.
func assertDialLimits(t *testing.T, connection resource.PropertyMap) {
	t.Helper()

	attempts, pauses, pause := connection["dialErrorLimit"].NumberValue()+1, 0.0, 0.1
	for range int(attempts) - 1 {
		pauses += pause
		pause *= 1.5
	}

	assert.GreaterOrEqual(t, pauses, 1.0, "seconds for a host that refuses")
	dead := attempts*connection["perDialTimeout"].NumberValue() + pauses
	assert.Positive(t, connection["perDialTimeout"].NumberValue())
	assert.LessOrEqual(t, dead, 120.0, "seconds for a host that is not there")
}
