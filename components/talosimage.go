package components

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/download"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/imagefactory"

	"talos-proxmox/internal/talos"
)

// TalosImageType is the type token of [TalosImage].
const TalosImageType = "talos-proxmox:image:TalosImage"

// downloadTimeout is in seconds. The Image Factory builds an image at its first request, which takes minutes of its
// own.
const downloadTimeout = 1800

// TalosImageArgs describe one image and where it is kept.
type TalosImageArgs struct {
	// What the image holds.
	Talos Talos `pulumi:"talos"`
	// What the image is: image = a compressed disk image for templates, iso = an ISO that machines boot. Default: image.
	Source string `pulumi:"source,optional"`
	// Where the image is needed; each store is downloaded to once. At least one.
	Stores []ImageStore `pulumi:"stores"`
	// The Image Factory's URL without a path. Default: https://factory.talos.dev.
	FactoryURL string `pulumi:"factoryUrl,optional"`
	// The SHA-256 of the downloaded (still compressed) file in hexadecimal. Default: not checked.
	Checksum string `pulumi:"checksum,optional"`
	// Keep the kernel arguments out of the state and previews. The Factory shows them to everybody who knows the
	// schematic's id. Default: false.
	Secret bool `pulumi:"secret,optional"`
	// The outputs settled of hosts that may be rebooted: their reboots come before the downloads, which they would
	// interrupt. Default: none.
	Settled pulumi.StringArrayInput `pulumi:"settled,optional"`
}

// ImageStore is a datastore of a host with the content type iso.
type ImageStore struct {
	// The Proxmox host, as Proxmox calls its nodes: pve1.
	Node string `pulumi:"node"`
	// The datastore: local.
	Datastore string `pulumi:"datastore"`
}

func (s ImageStore) key() string { return s.Node + "/" + s.Datastore }

// TalosImage is a Talos disk image or ISO of the Image Factory, kept on hosts under an immutable name of the stack's
// own.
type TalosImage struct {
	pulumi.ResourceState

	// The id the Image Factory gave the schematic, which is the one computed offline.
	SchematicID pulumi.StringOutput `pulumi:"schematicId"`
	// The file's name on the hosts.
	FileName pulumi.StringOutput `pulumi:"fileName"`
	// The volumes of the files by store, node/datastore: local:iso/talos-….img.
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

	c := &TalosImage{volumes: pulumi.StringMap{}}
	if err := ctx.RegisterComponentResource(TalosImageType, name, c, opts...); err != nil {
		return nil, fmt.Errorf("unable to register image %q: %w", name, err)
	}

	if err := c.makeSchematic(ctx, name, args); err != nil {
		return nil, fmt.Errorf("unable to register the schematic of image %q: %w", name, err)
	}

	for _, store := range args.Stores {
		if err := c.makeFile(ctx, name, args, store); err != nil {
			return nil, err
		}
	}

	c.VolumeIDs = c.volumes.ToStringMapOutput()
	if err := ctx.RegisterResourceOutputs(c, pulumi.Map{
		"schematicId": c.SchematicID, "fileName": c.FileName, "volumeIds": c.VolumeIDs,
	}); err != nil {
		return nil, fmt.Errorf("unable to register the outputs of image %q: %w", name, err)
	}

	return c, nil
}

// VolumeID returns the volume of a store's file, for [GoldenTemplateArgs]; nil for a store that the image was not asked
// for.
func (c *TalosImage) VolumeID(node, datastore string) pulumi.StringInput {
	return c.volumes[ImageStore{Node: node, Datastore: datastore}.key()]
}

func (c *TalosImage) makeSchematic(ctx *pulumi.Context, name string, args TalosImageArgs) error {
	schematic, err := imagefactory.NewSchematic(ctx, name+"-schematic", &imagefactory.SchematicArgs{
		Schematic: secretText(args.Secret, args.Talos.schematic().YAML()),
	}, pulumi.Parent(c))
	if err != nil {
		return err
	}

	c.SchematicID = confirmedID(schematic, args)

	return nil
}

// confirmedID fails at apply when the Factory knows the schematic under another id: file names, installers and URLs
// were planned with the offline one.
func confirmedID(schematic *imagefactory.Schematic, args TalosImageArgs) pulumi.StringOutput {
	planned := args.Talos.SchematicID()

	return schematic.ID().ApplyT(func(id pulumi.ID) (string, error) {
		if string(id) != planned {
			return "", fmt.Errorf("the Image Factory gave the schematic the id %s, planned was %s: it stores schematics in a form this program does not "+
				"know; use another factory (talos:imageFactoryUrl) or a newer version of this program", id, planned)
		}

		return planned, nil
	}).(pulumi.StringOutput)
}

func (c *TalosImage) makeFile(ctx *pulumi.Context, name string, args TalosImageArgs, store ImageStore) error {
	file := &download.FileArgs{
		ContentType:        pulumi.String("iso"),
		DatastoreId:        pulumi.String(store.Datastore),
		FileName:           pulumi.String(talos.ImageFile(args.Talos.image(args.Source), stackOwner(ctx))),
		NodeName:           pulumi.String(store.Node),
		Overwrite:          pulumi.Bool(false),
		OverwriteUnmanaged: pulumi.Bool(true), // what a killed run downloaded: the name says it is the same file
		UploadTimeout:      pulumi.Int(downloadTimeout),
		Url:                c.url(args),
		Verify:             pulumi.Bool(true),
	}
	if args.Source == SourceImage {
		file.DecompressionAlgorithm = pulumi.String("zst")
	}

	if args.Checksum != "" {
		file.Checksum = pulumi.String(args.Checksum)
		file.ChecksumAlgorithm = pulumi.String("sha256")
	}

	made, err := download.NewFile(ctx, fmt.Sprintf("%s-%s-%s", name, store.Node, store.Datastore), file,
		pulumi.Parent(c),
		waitFor(args.Settled),
		// The name says what is in the file; where it came from may move. A file that was downloaded before stacks had their
		// own keeps its name.
		pulumi.IgnoreChanges([]string{"url", "fileName"}),
		pulumi.DeleteBeforeReplace(true))
	if err != nil {
		return fmt.Errorf(
			"unable to register the download of image %q to %s on host %s: %w", name, store.Datastore, store.Node, err,
		)
	}

	if len(c.volumes) == 0 {
		c.FileName = made.FileName
	}

	c.volumes[store.key()] = pulumi.Sprintf("%s:iso/%s", store.Datastore, made.FileName)

	return nil
}

// url waits for the Factory to know the schematic: it has no image of one it does not.
func (c *TalosImage) url(args TalosImageArgs) pulumi.StringOutput {
	factory := talos.Factory{URL: args.FactoryURL}

	return c.SchematicID.ApplyT(func(id string) string {
		if args.Source == SourceISO {
			return factory.ISOURL(id, args.Talos.Version, args.Talos.Platform)
		}

		return factory.ImageURL(id, args.Talos.Version, args.Talos.Platform)
	}).(pulumi.StringOutput)
}

func (a TalosImageArgs) withDefaults() TalosImageArgs {
	a.Talos = a.Talos.withDefaults()
	setDefault(&a.Source, SourceImage)
	a.Stores = slices.Clone(a.Stores)
	slices.SortFunc(a.Stores, func(x, y ImageStore) int {
		return strings.Compare(x.Node+"\x00"+x.Datastore, y.Node+"\x00"+y.Datastore)
	})
	a.Stores = slices.Compact(a.Stores)

	return a
}

func (a TalosImageArgs) validate(name string) error {
	var found problems
	found.version("talos.version", a.Talos.Version)
	found.source("source", a.Source)

	if len(a.Stores) == 0 {
		found.add("stores", "is empty; add at least one host and datastore")
	}

	for i, store := range a.Stores {
		found.required(fmt.Sprintf("stores[%d].node", i), store.Node, "the Proxmox host, such as pve1")
		found.required(
			fmt.Sprintf("stores[%d].datastore", i), store.Datastore, "one with the content type iso, such as local",
		)
	}

	return found.of("image", name)
}
