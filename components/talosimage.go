package components

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/download"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/imagefactory"

	"proxmox-talos/internal/spec"
	"proxmox-talos/internal/talos"
)

// TalosImageType is the type token of [TalosImage].
const TalosImageType = "talos-proxmox:image:TalosImage"

// downloadTimeout is in seconds. The Image Factory builds an image at its first request, which takes minutes of its own.
const downloadTimeout = 1800

// TalosImageArgs describe one image and where it is kept.
type TalosImageArgs struct {
	Schematic talos.Schematic
	// Secret says that the schematic's kernel arguments are kept out of the state and previews. The Factory shows them
	// to everybody who knows the schematic's id.
	Secret   bool
	Version  string // Talos, with its v
	Platform string // default nocloud
	Source   spec.Source
	Factory  talos.Factory
	// Checksum of the downloaded file, hex SHA-256; empty = not checked.
	Checksum string
	// Stores are where the image is needed; each is downloaded to once.
	Stores []ImageStore
	// After is what downloads wait for: a reboot of a host would break them off.
	After []pulumi.Resource
}

// ImageStore is a datastore of a host with the content type iso.
type ImageStore struct{ Host, Datastore string }

// TalosImage is a Talos disk image or ISO of the Image Factory, kept on hosts under an immutable name of the stack's own. Classes with the same schematic and version share it.
type TalosImage struct {
	pulumi.ResourceState

	// SchematicID is the id the Image Factory gave, which is the one computed offline.
	SchematicID pulumi.StringOutput `pulumi:"schematicId"`
	// FileName on the first store.
	FileName pulumi.StringOutput `pulumi:"fileName"`

	files map[ImageStore]*download.File
}

// ImageName says what is in an image. It is the image's name in the state; on a host, the name of a stack's file has the stack in it, see [ImageFileName].
func ImageName(schematicID, version, platform string, source spec.Source) string {
	extension := "img"
	if source == spec.SourceISO {
		extension = "iso"
	}

	return fmt.Sprintf("talos-%s-%.12s-%s-%s.%s", version, schematicID, platform, talos.Arch, extension)
}

// ImageFileName returns the name under which a host keeps a stack's file of an image; PVE accepts only .iso and .img as content type iso. Stacks that share a host
// share no file: what one of them deletes or downloads again is its own.
func ImageFileName(image, owner string) string {
	digest := sha256.Sum256([]byte(owner))
	extension := path.Ext(image)

	return fmt.Sprintf("%s-%x%s", strings.TrimSuffix(image, extension), digest[:4], extension)
}

// NewTalosImage registers the schematic with the Image Factory and downloads the image to every store.
func NewTalosImage(ctx *pulumi.Context, name string, args TalosImageArgs, opts ...pulumi.ResourceOption) (*TalosImage, error) {
	args = args.withDefaults()
	if err := args.validate(); err != nil {
		return nil, fmt.Errorf("image %q: %w", name, err)
	}

	c := &TalosImage{files: make(map[ImageStore]*download.File, len(args.Stores))}
	if err := ctx.RegisterComponentResource(TalosImageType, name, c, opts...); err != nil {
		return nil, fmt.Errorf("unable to register image %q: %w", name, err)
	}

	schematic, err := imagefactory.NewSchematic(ctx, name+"-schematic", &imagefactory.SchematicArgs{
		Schematic: secretText(args.Secret, args.Schematic.YAML()),
	}, pulumi.Parent(c))
	if err != nil {
		return nil, fmt.Errorf("unable to register the schematic of image %q: %w", name, err)
	}
	c.SchematicID = confirmedID(schematic, args)

	for _, store := range args.Stores {
		if err := c.download(ctx, name, args, store); err != nil {
			return nil, err
		}
	}

	c.FileName = c.files[args.Stores[0]].FileName
	if err := ctx.RegisterResourceOutputs(c, pulumi.Map{"schematicId": c.SchematicID, "fileName": c.FileName}); err != nil {
		return nil, fmt.Errorf("unable to register the outputs of image %q: %w", name, err)
	}

	return c, nil
}

// volume is the volume of a store's file: local:iso/talos-….
func (c *TalosImage) volume(store ImageStore) pulumi.StringOutput {
	return pulumi.Sprintf("%s:iso/%s", store.Datastore, c.files[store].FileName)
}

// File returns the download to a store, nil for a store the image was not asked for.
func (c *TalosImage) File(store ImageStore) *download.File { return c.files[store] }

// confirmedID fails at apply when the Factory knows the schematic under another id: file names, installers and URLs were planned with the offline one.
func confirmedID(schematic *imagefactory.Schematic, args TalosImageArgs) pulumi.StringOutput {
	planned := args.Schematic.ID()

	return schematic.ID().ApplyT(func(id pulumi.ID) (string, error) {
		if string(id) != planned {
			return "", fmt.Errorf("the Image Factory gave the schematic the id %s, planned was %s: it stores schematics in a form this program does not "+
				"know; use another factory (talos:imageFactoryUrl) or a newer version of this program", id, planned)
		}

		return planned, nil
	}).(pulumi.StringOutput)
}

func (c *TalosImage) download(ctx *pulumi.Context, name string, args TalosImageArgs, store ImageStore) error {
	file := &download.FileArgs{
		ContentType:        pulumi.String("iso"),
		DatastoreId:        pulumi.String(store.Datastore),
		FileName:           pulumi.String(ImageFileName(args.image(), stackOwner(ctx))),
		NodeName:           pulumi.String(store.Host),
		Overwrite:          pulumi.Bool(false),
		OverwriteUnmanaged: pulumi.Bool(true), // what a killed run downloaded: the name says it is the same file
		UploadTimeout:      pulumi.Int(downloadTimeout),
		Url:                c.url(args),
		Verify:             pulumi.Bool(true),
	}
	if args.Source == spec.SourceImage {
		file.DecompressionAlgorithm = pulumi.String("zst")
	}
	if args.Checksum != "" {
		file.Checksum = pulumi.String(args.Checksum)
		file.ChecksumAlgorithm = pulumi.String("sha256")
	}

	resource, err := download.NewFile(ctx, fmt.Sprintf("%s-%s-%s", name, store.Host, store.Datastore), file,
		pulumi.Parent(c),
		pulumi.DependsOn(args.After),
		// The name says what is in the file; where it came from may move. A file that was downloaded before stacks had their own keeps its name.
		pulumi.IgnoreChanges([]string{"url", "fileName"}),
		pulumi.DeleteBeforeReplace(true))
	if err != nil {
		return fmt.Errorf("unable to register the download of %s to %s on %s: %w", args.image(), store.Datastore, store.Host, err)
	}
	c.files[store] = resource

	return nil
}

// url waits for the schematic: the Factory has no image of one it was never given.
func (c *TalosImage) url(args TalosImageArgs) pulumi.StringOutput {
	return c.SchematicID.ApplyT(func(id string) string {
		if args.Source == spec.SourceISO {
			return args.Factory.ISOURL(id, args.Version, args.Platform)
		}

		return args.Factory.ImageURL(id, args.Version, args.Platform)
	}).(pulumi.StringOutput)
}

func (a TalosImageArgs) image() string {
	return ImageName(a.Schematic.ID(), a.Version, a.Platform, a.Source)
}

func (a TalosImageArgs) withDefaults() TalosImageArgs {
	if a.Platform == "" {
		a.Platform = "nocloud"
	}
	if a.Source == "" {
		a.Source = spec.SourceImage
	}
	a.Stores = slices.Clone(a.Stores)
	slices.SortFunc(a.Stores, func(x, y ImageStore) int {
		return strings.Compare(x.Host+"\x00"+x.Datastore, y.Host+"\x00"+y.Datastore)
	})
	a.Stores = slices.Compact(a.Stores)

	return a
}

func (a TalosImageArgs) validate() error {
	var problems []error
	if a.Version == "" {
		problems = append(problems, errors.New("no version: state Talos' version in full, like v1.12.6"))
	}
	if a.Source != spec.SourceImage && a.Source != spec.SourceISO {
		problems = append(problems, fmt.Errorf("unknown source %q: choose image or iso", a.Source))
	}
	if len(a.Stores) == 0 {
		problems = append(problems, errors.New("no store: state at least one host and datastore"))
	}

	return errors.Join(problems...)
}
