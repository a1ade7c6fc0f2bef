package components

import (
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/enginetest"
	"talos-proxmox/internal/tokens"
)

const plainSchematic = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"

func runTemplates(t *testing.T, o enginetest.Options, all ...GoldenTemplateArgs) (*enginetest.Recorder, error) {
	t.Helper()

	return enginetest.Run(o, func(ctx *pulumi.Context) error {
		_, err := templates(ctx, all...)

		return err
	})
}

func TestTalosImageIsDownloadedToEveryStore(t *testing.T) {
	t.Parallel()
	r, err := runTemplates(t, enginetest.Options{}, plannedTemplate("pve1"), plannedTemplate("pve2"))
	require.NoError(t, err)

	require.Equal(t, []string{"image-schematic"}, r.Names(tokens.Schematic), "one for all hosts")
	assert.Equal(t, "image", r.Of(tokens.Schematic)["image-schematic"].Parent)
	require.Equal(t, []string{"image-pve1-local", "image-pve2-local"}, r.Names(tokens.File))
	assert.Equal(t, resource.NewPropertyMapFromMap(map[string]any{
		"schematicId": plainSchematic,
		"fileName":    "talos-v1.12.6-376567988ad3-nocloud-amd64-abdd2fa7.img",
		"volumeIds": map[string]any{
			"pve1/local": "local:iso/talos-v1.12.6-376567988ad3-nocloud-amd64-abdd2fa7.img",
			"pve2/local": "local:iso/talos-v1.12.6-376567988ad3-nocloud-amd64-abdd2fa7.img",
		},
	}), r.Outputs("image"))
}

func TestTalosImageVariants(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		change func(*TalosImageArgs)
		inputs map[string]any
	}{
		"an ISO is not compressed": {
			func(a *TalosImageArgs) { a.Source = SourceISO },
			map[string]any{
				"fileName": "talos-v1.12.6-376567988ad3-nocloud-amd64-abdd2fa7.iso", "decompressionAlgorithm": nil,
				"url": "https://factory.talos.dev/image/" + plainSchematic + "/v1.12.6/nocloud-amd64.iso",
			},
		},
		"a checksum is checked": {
			func(a *TalosImageArgs) { a.Checksum = strings.Repeat("ab", 32) },
			map[string]any{"checksum": strings.Repeat("ab", 32), "checksumAlgorithm": "sha256"},
		},
		"extensions make another schematic, another factory does not": {
			func(a *TalosImageArgs) {
				a.Talos.Extensions, a.FactoryURL = []string{"siderolabs/qemu-guest-agent"}, "http://127.1.0.9:8080"
			},
			map[string]any{
				"fileName": "talos-v1.12.6-ce4c980550dd-nocloud-amd64-abdd2fa7.img",
				"url":      "http://127.1.0.9:8080/image/ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515/v1.12.6/nocloud-amd64.raw.zst",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			args := TalosImageArgs{Talos: Talos{Version: "v1.12.6"}, Stores: []ImageStore{{"pve1", "local"}, {"pve1", "local"}}}
			test.change(&args)

			r, err := enginetest.Run(enginetest.Options{}, func(ctx *pulumi.Context) error {
				_, err := NewTalosImage(ctx, "image", args)

				return err
			})
			require.NoError(t, err)

			require.Equal(
				t, []string{"image-pve1-local"}, r.Names(tokens.File), "a store stated twice is downloaded to once",
			)

			for property, value := range test.inputs {
				assert.Equal(
					t, resource.NewPropertyValue(value), r.Of(tokens.File)["image-pve1-local"].Input(property), property,
				)
			}
		})
	}
}

func TestTalosImageOfAnotherIDThanPlannedFails(t *testing.T) {
	t.Parallel()
	r, err := runTemplates(t, enginetest.Options{SchematicID: "another"}, plannedTemplate("pve1"))

	require.ErrorContains(t, err, "the Image Factory gave the schematic the id another, planned was "+plainSchematic)
	assert.Empty(t, r.Of(tokens.File), "nothing is downloaded")
}

func TestTalosImageInAPreview(t *testing.T) {
	t.Parallel()
	r, err := runTemplates(t, enginetest.Options{Preview: true}, plannedTemplate("pve1"))
	require.NoError(t, err)

	file := r.Of(tokens.File)["image-pve1-local"]
	assert.True(t, file.Input("url").IsComputed())
	assert.Equal(t, "talos-v1.12.6-376567988ad3-nocloud-amd64-abdd2fa7.img", file.Input("fileName").StringValue())
	assert.Equal(t, float64(901), r.Outputs("talos-pve1")["vmid"].NumberValue())
	assert.False(t, r.Of(tokens.RemoteCommand)["talos-pve1-build"].Input("stdin").ContainsUnknowns())
}

func TestGoldenTemplateIsBuiltOnItsHost(t *testing.T) {
	t.Parallel()
	r, err := runTemplates(t, enginetest.Options{Stack: "lab"}, plannedTemplate("pve1"), plannedTemplate("pve2"))
	require.NoError(t, err)

	require.Equal(t, []string{"talos-pve1-build", "talos-pve2-build"}, r.Names(tokens.RemoteCommand))
	build := r.Of(tokens.RemoteCommand)["talos-pve1-build"]
	assert.Equal(t, "talos-pve1", build.Parent)
	assert.Equal(t, []string{"image-pve1-local"}, build.DependsOn())
	assert.Equal(t, hostCommand(actionBuild, 901, lockSeconds), build.Input("create").StringValue())
	assert.Equal(t, hostCommand(actionRemove, 901, lockSeconds), build.Input("delete").StringValue())

	stdin := build.Input("stdin").StringValue()
	for _, line := range []string{
		"owner='talos-proxmox/lab'", "vmid='901'", "name='talos-v1.12.6-talos'",
		"image='local:iso/talos-v1.12.6-376567988ad3-nocloud-amd64-f181a7a2.img'",
	} {
		assert.Contains(t, stdin, line+"\n")
	}

	require.True(t, build.Input("connection").IsSecret())
	connection := build.Input("connection").SecretValue().Element.ObjectValue()
	assert.Equal(t, "127.1.0.11", connection["host"].StringValue())
	assert.Equal(t, "ssh-ed25519 AAAA", connection["hostKey"].StringValue())
	assertPatience(t, connection)
	assert.NotContains(t, connection, "privateKey", "the SSH agent is used")
	assert.Equal(t, resource.NewPropertyMapFromMap(map[string]any{
		"vmid":        901,
		"name":        "talos-v1.12.6-talos",
		"host":        "pve1",
		"volumeId":    "local:iso/talos-v1.12.6-376567988ad3-nocloud-amd64-f181a7a2.img",
		"schematicId": plainSchematic, "version": "v1.12.6",
	}), r.Outputs("talos-pve1"))
}

func TestGoldenTemplateIsBuiltAnewOnlyWhenItWouldBeAnother(t *testing.T) {
	t.Parallel()

	trigger := func(stack string, change func(*GoldenTemplateArgs)) string {
		template := plannedTemplate("pve1")
		change(&template)
		r, err := runTemplates(t, enginetest.Options{Stack: stack}, template)
		require.NoError(t, err)

		return text(r.Of(tokens.RemoteCommand)["talos-pve1-build"].Input("triggers"))
	}
	before := trigger("lab", func(*GoldenTemplateArgs) {})

	assert.Equal(t, before, trigger("lab", func(*GoldenTemplateArgs) {}))
	assert.Equal(t, before, trigger("lab", func(t *GoldenTemplateArgs) {
		t.Shell = &HostShell{Address: "127.1.0.12", Port: 2222}
	}), "how its host is reached")

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

func TestGoldenTemplateFromAnISOHasNoVM(t *testing.T) {
	t.Parallel()

	template := plannedTemplate("pve1")
	template.Source, template.VMID = SourceISO, 0
	r, err := runTemplates(t, enginetest.Options{}, template)
	require.NoError(t, err)

	assert.Empty(t, r.Of(tokens.RemoteCommand))
	assert.Equal(
		t, "local:iso/talos-v1.12.6-376567988ad3-nocloud-amd64-abdd2fa7.iso",
		r.Outputs("talos-pve1")["volumeId"].StringValue(),
	)
	assert.Equal(t, float64(0), r.Outputs("talos-pve1")["vmid"].NumberValue())
}

func TestGoldenTemplateUsesThePrivateKeyAsASecret(t *testing.T) {
	t.Parallel()

	r, err := enginetest.Run(enginetest.Options{}, func(ctx *pulumi.Context) error {
		template := plannedTemplate("pve1")

		image, err := NewTalosImage(
			ctx, "image", TalosImageArgs{Talos: Talos{Version: "v1.12.6"}, Stores: []ImageStore{{"pve1", "local"}}},
		)
		if err != nil {
			return err
		}

		template.Image = image.VolumeID("pve1", "local")
		template.Shell = &HostShell{Address: "127.1.0.11", PrivateKey: pulumi.String("the-private-key")}
		_, err = NewGoldenTemplate(ctx, "talos-pve1", template)

		return err
	})
	require.NoError(t, err)

	connection := r.Of(tokens.RemoteCommand)["talos-pve1-build"].Input("connection")
	require.True(t, connection.IsSecret())
	assert.Equal(t, "the-private-key", connection.SecretValue().Element.ObjectValue()["privateKey"].StringValue())
	assert.NotContains(t, connection.SecretValue().Element.ObjectValue(), "hostKey")
}

func TestGoldenTemplateRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()

	refuse(t, func() GoldenTemplateArgs {
		args := plannedTemplate("pve1")
		args.Image, args.Shell = pulumi.String("local:iso/talos.img"), &HostShell{Address: "127.1.0.11"}

		return args
	}, NewGoldenTemplate, map[string]refusal[GoldenTemplateArgs]{
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
			`shell.address: "" is not an IP address; use one such as 10.0.0.2`,
		},
	})

	refuse(t, func() TalosImageArgs {
		return TalosImageArgs{Talos: Talos{Version: "v1.12.6"}, Stores: []ImageStore{{"pve1", "local"}}}
	}, NewTalosImage, map[string]refusal[TalosImageArgs]{
		"an image without a version": {
			func(a *TalosImageArgs) { a.Talos.Version = "" },
			`talos.version: "" cannot be used: "" is not a version of Talos: write it in full, such as v1.14.4`,
		},
		"an image without a store": {
			func(a *TalosImageArgs) { a.Stores = nil }, "stores: is empty; add at least one host and datastore",
		},
		"an unknown source": {
			func(a *TalosImageArgs) { a.Source = "tape" }, `source: "tape" is not a source; choose image or iso`,
		},
	})
}

// assertPatience expects attempts enough to ride out an SSH server that restarts or drops connections of many at once,
// and few enough to tell of a dead host soon. pulumi-command makes one attempt more than the limit, waits a tenth of a
// second after the first and half as long again after each; -1 has no end.
func assertPatience(t *testing.T, connection resource.PropertyMap) {
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
