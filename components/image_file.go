package components

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/download"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/problem"
)

// downloadTimeout is in seconds. The Image Factory builds an image at its first request, which takes minutes of its
// own.
const downloadTimeout = 1800

// ImageStore is a datastore of a host with the content type iso.
type ImageStore struct {
	// The name of the Proxmox host: pve1.
	Node string `pulumi:"node"`
	// The datastore: local.
	Datastore string `pulumi:"datastore"`
}

func (s ImageStore) key() string { return s.Node + "/" + s.Datastore }

// imageFile is a file that hosts download, with the content type iso: Proxmox imports it by its path, and has that type
// enabled from the start.
type imageFile struct {
	name                string
	url                 pulumi.StringInput
	checksum, algorithm string // an empty checksum is not checked
	compression         string // that Proxmox undoes; empty = none
}

// downloads registers the downloads of the file to stores, and returns the name of the first file and the volumes by
// store.
func (f imageFile) downloads(
	ctx *pulumi.Context, parent pulumi.Resource, name string, stores []ImageStore, settled pulumi.StringArrayInput,
) (fileName pulumi.StringOutput, volumes pulumi.StringMap, err error) {
	volumes = pulumi.StringMap{}

	for _, store := range stores {
		made, err := f.download(ctx, parent, name, store, settled)
		if err != nil {
			return fileName, volumes, fmt.Errorf("to %s on host %s: %w", store.Datastore, store.Node, err)
		}

		if len(volumes) == 0 {
			fileName = made.FileName
		}

		volumes[store.key()] = pulumi.Sprintf("%s:iso/%s", store.Datastore, made.FileName)
	}

	return fileName, volumes, nil
}

func (f imageFile) download(
	ctx *pulumi.Context, parent pulumi.Resource, name string, store ImageStore, settled pulumi.StringArrayInput,
) (*download.File, error) {
	args := &download.FileArgs{
		ContentType:        pulumi.String("iso"),
		DatastoreId:        pulumi.String(store.Datastore),
		FileName:           pulumi.String(f.name),
		NodeName:           pulumi.String(store.Node),
		Overwrite:          pulumi.Bool(false),
		OverwriteUnmanaged: pulumi.Bool(true), // what a killed run downloaded: the name says it is the same file
		UploadTimeout:      pulumi.Int(downloadTimeout),
		Url:                f.url,
		Verify:             pulumi.Bool(true),
	}
	if f.compression != "" {
		args.DecompressionAlgorithm = pulumi.String(f.compression)
	}

	if f.checksum != "" {
		args.Checksum = pulumi.String(f.checksum)
		args.ChecksumAlgorithm = pulumi.String(f.algorithm)
	}

	return download.NewFile(ctx, fmt.Sprintf("%s-%s-%s", name, store.Node, store.Datastore), args,
		pulumi.Parent(parent),
		waitFor(settled),
		// The name says what is in the file; where it came from may move. A file that was downloaded before stacks had their
		// own keeps its name.
		pulumi.IgnoreChanges([]string{"url", "fileName"}),
		pulumi.DeleteBeforeReplace(true))
}

// sortedStores are stores in order, each once.
func sortedStores(stores []ImageStore) []ImageStore {
	sorted := slices.Clone(stores)
	slices.SortFunc(sorted, func(x, y ImageStore) int {
		return strings.Compare(x.Node+"\x00"+x.Datastore, y.Node+"\x00"+y.Datastore)
	})

	return slices.Compact(sorted)
}

func checkStores(found *problem.List, stores []ImageStore) {
	if len(stores) == 0 {
		found.Add("stores", nil, "is empty; add at least one host and datastore")
	}

	for i, store := range stores {
		required(found, fmt.Sprintf("stores[%d].node", i), store.Node, "the Proxmox host, such as pve1")
		required(found,
			fmt.Sprintf("stores[%d].datastore", i), store.Datastore, "one with the content type iso, such as local",
		)
	}
}
