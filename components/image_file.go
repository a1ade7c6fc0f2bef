package components

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/download"
	"github.com/pulumi/pulumi-command/sdk/go/command/local"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
)

// downloadTimeout is in seconds. The Image Factory builds an image at its first request, which alone takes minutes.
const downloadTimeout = 1800

// ImageStore is a datastore of a host with the content type of the image: iso, or import with that source.
type ImageStore struct {
	// The name of the Proxmox host: pve1.
	Host string `pulumi:"host"`
	// The datastore: local.
	Datastore string `pulumi:"datastore"`
}

func (s ImageStore) key() string { return s.Host + "/" + s.Datastore }

// imageFile is a file that hosts download: with the content type iso, which Proxmox enables by default, and which
// templates import by its path, or with the content type import, which the provider does not know.
type imageFile struct {
	name                string
	imported            bool
	url                 pulumi.StringInput
	checksum, algorithm string // no checksum = not verified
	compression         string // Proxmox decompresses the file; empty = none
}

// registerDownloads registers the downloads of the file to stores, and returns the name of the first file and the
// volumes by store.
func (f imageFile) registerDownloads(
	ctx *pulumi.Context, parent pulumi.Resource, name string, stores []ImageStore, settled pulumi.StringArrayInput,
) (fileName pulumi.StringOutput, volumes pulumi.StringMap, err error) {
	volumes = pulumi.StringMap{}

	for _, store := range stores {
		if f.imported {
			command, err := f.registerImport(ctx, parent, name, store, settled)
			if err != nil {
				return fileName, volumes, fmt.Errorf("to %s on host %s: %w", store.Datastore, store.Host, err)
			}

			fileName = pulumi.String(f.name).ToStringOutput()
			volumes[store.key()] = valueAfter(ctx, store.Datastore+":import/"+f.name, command)

			continue
		}

		file, err := f.registerDownload(ctx, parent, name, store, settled)
		if err != nil {
			return fileName, volumes, fmt.Errorf("to %s on host %s: %w", store.Datastore, store.Host, err)
		}

		if len(volumes) == 0 {
			fileName = file.FileName
		}

		volumes[store.key()] = pulumi.Sprintf("%s:iso/%s", store.Datastore, file.FileName)
	}

	return fileName, volumes, nil
}

func (f imageFile) registerDownload(
	ctx *pulumi.Context, parent pulumi.Resource, name string, store ImageStore, settled pulumi.StringArrayInput,
) (*download.File, error) {
	args := &download.FileArgs{
		ContentType:        pulumi.String("iso"),
		DatastoreId:        pulumi.String(store.Datastore),
		FileName:           pulumi.String(f.name),
		NodeName:           pulumi.String(store.Host),
		Overwrite:          pulumi.Bool(false),
		OverwriteUnmanaged: pulumi.Bool(true), // a file that a killed run downloaded; the name identifies its contents
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

	return download.NewFile(ctx, fmt.Sprintf("%s-%s-%s", name, store.Host, store.Datastore), args,
		pulumi.Parent(parent),
		waitFor(settled),
		// The name identifies the contents, wherever they came from. Files of earlier versions of the program, which stacks
		// shared, keep their names.
		pulumi.IgnoreChanges([]string{"url", "fileName"}),
		pulumi.DeleteBeforeReplace(true))
}

// registerImport registers the download of the file with the content type import.
func (f imageFile) registerImport(
	ctx *pulumi.Context, parent pulumi.Resource, name string, store ImageStore, settled pulumi.StringArrayInput,
) (*local.Command, error) {
	req := request.ImageFile{
		Proxmox: ProxmoxSettings(ctx), Host: store.Host, Datastore: store.Datastore, File: f.name, Checksum: f.checksum,
	}
	stdin := f.url.ToStringOutput().ApplyT(func(url string) (string, error) {
		req.URL = url
		text, err := json.Marshal(req)

		return string(text), err
	}).(pulumi.StringOutput)

	return registerAPICommand(ctx, fmt.Sprintf("%s-%s-%s", name, store.Host, store.Datastore), apiCommand{
		verb: "image", provenance: store.Datastore + ":import/" + f.name, request: stdin,
	}, pulumi.Parent(parent), waitFor(settled))
}

// sortedStores returns the stores in order, without duplicates.
func sortedStores(stores []ImageStore) []ImageStore {
	sorted := slices.Clone(stores)
	slices.SortFunc(sorted, func(x, y ImageStore) int {
		return strings.Compare(x.Host+"\x00"+x.Datastore, y.Host+"\x00"+y.Datastore)
	})

	return slices.Compact(sorted)
}

func checkStores(found *problem.List, stores []ImageStore) {
	if len(stores) == 0 {
		found.Add("stores", nil, "is empty; add at least one host and datastore")
	}

	for i, store := range stores {
		required(found, fmt.Sprintf("stores[%d].host", i), store.Host, "the Proxmox host, such as pve1")
		required(found,
			fmt.Sprintf("stores[%d].datastore", i), store.Datastore, "one with the content type of the image, such as local",
		)
	}
}
