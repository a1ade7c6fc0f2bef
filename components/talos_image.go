package components

import (
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/imagefactory"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/talos"
)

// TalosImageType is the type token of [TalosImage].
const TalosImageType = "talos-proxmox:image:TalosImage"

// TalosImageArgs describe one image and where it is kept.
type TalosImageArgs struct {
	// The contents of the image.
	Talos Talos `pulumi:"talos"`
	// What the image is: image = a compressed disk image for templates, import = a QCOW2 file for templates, iso = an ISO
	// that machines boot. Default: image.
	Source string `pulumi:"source,optional"`
	// The datastores that need the image; it is downloaded once to each. At least one.
	Stores []ImageStore `pulumi:"stores"`
	// The Image Factory's URL without a path. Default: https://factory.talos.dev.
	FactoryURL string `pulumi:"factoryUrl,optional"`
	// The SHA-256 of the downloaded (still compressed) file in hexadecimal. Default: not checked.
	Checksum string `pulumi:"checksum,optional"`
	// Store the kernel arguments as secrets in state and previews. The Factory shows them to everybody who knows the
	// schematic's id. Default: false.
	Secret bool `pulumi:"secret,optional"`
	// The outputs settled of hosts that may be rebooted: downloads start after the reboots. Default: none.
	Settled pulumi.StringArrayInput `pulumi:"settled,optional"`
}

// TalosImage is a Talos disk image or ISO of the Image Factory, stored on hosts under an immutable name of the stack.
// With the source import, the download uses the settings of the provider in the stack's configuration.
type TalosImage struct {
	pulumi.ResourceState

	// The id of the schematic at the Image Factory, which equals the one computed offline.
	SchematicID pulumi.StringOutput `pulumi:"schematicId"`
	// The file's name on the hosts.
	FileName pulumi.StringOutput `pulumi:"fileName"`
	// The volumes of the files, by node/datastore: local:iso/talos-….img.
	VolumeIDs pulumi.StringMapOutput `pulumi:"volumeIds"`

	volumes pulumi.StringMap
}

// NewTalosImage registers the schematic with the Image Factory and downloads the image to every store.
func NewTalosImage(
	ctx *pulumi.Context, name string, args TalosImageArgs, opts ...pulumi.ResourceOption,
) (*TalosImage, error) {
	args = args.withDefaults()
	if err := args.validate(name); err != nil {
		return nil, err
	}

	c := &TalosImage{}

	return register(ctx, TalosImageType, "image", name, c, opts,
		step{"the schematic of ", func() error { return c.registerSchematic(ctx, name, args) }},
		step{"the downloads of ", func() error { return c.registerDownloads(ctx, name, args) }},
	)
}

// VolumeID returns the volume of the file in a store, for [GoldenTemplateArgs]; nil for a store that is not one of the
// image's.
func (c *TalosImage) VolumeID(node, datastore string) pulumi.StringInput {
	return c.volumes[ImageStore{Host: node, Datastore: datastore}.key()]
}

func (c *TalosImage) registerSchematic(ctx *pulumi.Context, name string, args TalosImageArgs) error {
	schematic, err := imagefactory.NewSchematic(ctx, name+"-schematic", &imagefactory.SchematicArgs{
		Schematic: secretText(args.Secret, args.Talos.Contents().YAML()),
	}, pulumi.Parent(c))
	if err != nil {
		return err
	}

	c.SchematicID = verifiedSchematicID(schematic, args)

	return nil
}

// verifiedSchematicID fails at apply time if the Factory has the schematic under another id: file names, installers and
// URLs were planned with the one computed offline.
func verifiedSchematicID(schematic *imagefactory.Schematic, args TalosImageArgs) pulumi.StringOutput {
	planned := args.Talos.SchematicID()

	return schematic.ID().ApplyT(func(id pulumi.ID) (string, error) {
		if string(id) != planned {
			return "", fmt.Errorf("the Image Factory gave the schematic the id %s, planned was %s: it stores schematics in a form this program does not "+
				"know; use another factory (talos:imageFactoryUrl) or a newer version of this program", id, planned)
		}

		return planned, nil
	}).(pulumi.StringOutput)
}

func (c *TalosImage) registerDownloads(ctx *pulumi.Context, name string, args TalosImageArgs) (err error) {
	file := imageFile{
		name: talos.ImageFile(args.Talos.Image(args.Source), stackPath(ctx)), url: c.url(args), checksum: args.Checksum,
		algorithm: "sha256",
	}

	switch args.Source {
	case SourceImage:
		file.compression = "zst"
	case SourceImport:
		file.imported = true
	}

	c.FileName, c.volumes, err = file.registerDownloads(ctx, c, name, args.Stores, args.Settled)
	c.VolumeIDs = c.volumes.ToStringMapOutput()

	return err
}

// url waits until the Factory knows the schematic: before, it has no image of it.
func (c *TalosImage) url(args TalosImageArgs) pulumi.StringOutput {
	factory := talos.Factory{URL: args.FactoryURL}

	return c.SchematicID.ApplyT(func(id string) string {
		switch args.Source {
		case SourceISO:
			return factory.ISOURL(id, args.Talos.Version, args.Talos.Kind())
		case SourceImport:
			return factory.QCOW2URL(id, args.Talos.Version, args.Talos.Kind())
		default:
			return factory.ImageURL(id, args.Talos.Version, args.Talos.Kind())
		}
	}).(pulumi.StringOutput)
}

func (a TalosImageArgs) withDefaults() TalosImageArgs {
	a.Talos = talosWithDefaults(a.Talos)
	setDefault(&a.Source, SourceImage)
	a.Stores = sortedStores(a.Stores)

	return a
}

func (a TalosImageArgs) validate(name string) error {
	found := &problem.List{}
	checkVersion(found, "talos.version", a.Talos.Version)
	checkSource(found, "source", a.Source)

	if err := talos.CheckSecureBoot(a.Talos.Version, a.Source == SourceISO); a.Talos.SecureBoot && err != nil {
		found.Add("talos.secureBoot", true, "is not possible: %s", err)
	}

	checkStores(found, a.Stores)

	return problemsOf("image", name, found)
}
