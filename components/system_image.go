package components

import (
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/problem"
)

// SystemImageType is the type token of [SystemImage].
const SystemImageType = "talos-proxmox:image:SystemImage"

// SystemImageArgs describe one image of a system other than Talos, and where it is kept.
type SystemImageArgs struct {
	// The file's address: https://….qcow2.
	URL string `pulumi:"url"`
	// The file's name on hosts, which identifies its contents and ends with .img: debian-13-20260712-2537.img. An
	// existing file is never replaced.
	FileName string `pulumi:"fileName"`
	// The checksum of the file in hexadecimal. Default: not checked.
	Checksum string `pulumi:"checksum,optional"`
	// The algorithm of the checksum: sha256, sha384 or sha512. Default: sha256.
	ChecksumAlgorithm string `pulumi:"checksumAlgorithm,optional"`
	// The datastores that need the image; it is downloaded once to each. At least one.
	Stores []ImageStore `pulumi:"stores"`
	// The outputs settled of hosts that may be rebooted: downloads start after the reboots. Default: none.
	Settled pulumi.StringArrayInput `pulumi:"settled,optional"`
}

// SystemImage is a cloud image of a system other than Talos (Debian, Ubuntu, Arch Linux), stored on hosts under an
// immutable name. Proxmox verifies the checksum.
type SystemImage struct {
	pulumi.ResourceState

	// The file's name on the hosts.
	FileName pulumi.StringOutput `pulumi:"fileName"`
	// The volumes of the files, by node/datastore: local:iso/debian-….img.
	VolumeIDs pulumi.StringMapOutput `pulumi:"volumeIds"`

	volumes pulumi.StringMap
}

// NewSystemImage downloads the image to every store.
func NewSystemImage(
	ctx *pulumi.Context, name string, args SystemImageArgs, opts ...pulumi.ResourceOption,
) (*SystemImage, error) {
	args = args.withDefaults()
	if err := args.validate(name); err != nil {
		return nil, err
	}

	c := &SystemImage{}
	file := imageFile{
		name: args.FileName, url: pulumi.String(args.URL), checksum: args.Checksum, algorithm: args.ChecksumAlgorithm,
	}

	return register(ctx, SystemImageType, "image", name, c, opts, step{"the downloads of ", func() (err error) {
		_, c.volumes, err = file.registerDownloads(ctx, c, name, args.Stores, args.Settled)
		c.FileName, c.VolumeIDs = pulumi.String(args.FileName).ToStringOutput(), c.volumes.ToStringMapOutput()

		return err
	}})
}

// VolumeID returns the volume of the file in a store, for [GoldenTemplateArgs]; nil for a store that is not one of the
// image's.
func (c *SystemImage) VolumeID(node, datastore string) pulumi.StringInput {
	return c.volumes[ImageStore{Host: node, Datastore: datastore}.key()]
}

func (a SystemImageArgs) withDefaults() SystemImageArgs {
	setDefault(&a.ChecksumAlgorithm, "sha256")
	a.Stores = sortedStores(a.Stores)

	return a
}

func (a SystemImageArgs) validate(name string) error {
	found := &problem.List{}
	required(found, "url", a.URL, "the file's address, such as https://….qcow2")

	if !strings.HasSuffix(a.FileName, ".img") {
		found.Add("fileName", a.FileName, "does not end with .img, which the content type iso wants; add it")
	}

	checkStores(found, a.Stores)

	return problemsOf("image", name, found)
}
