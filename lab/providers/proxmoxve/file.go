package proxmoxve

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"

	p "github.com/pulumi/pulumi-go-provider"
)

const (
	typeDownloadFile = "proxmoxve:Download/file:File"

	// The published provider keeps these beside the state: the size at the previous refresh, and that of the web
	// server.
	previousSizeKey = "__previousSize"
	urlSizeKey      = "__urlSize"
)

// downloadFileTable has the properties of Download.File.
func downloadFileTable() attributes {
	return attributes{
		"checksum":               {effect: Replace},
		"checksumAlgorithm":      {effect: Replace, validate: oneOf("md5", "sha1", "sha224", "sha256", "sha384", "sha512")},
		"contentType":            {required: true, effect: Replace, validate: oneOf("iso", "vztmpl")},
		"datastoreId":            {required: true, effect: Replace},
		"decompressionAlgorithm": {effect: InPlace, validate: oneOf("gz", "lzo", "zst", "bz2")},
		"fileName":               {computed: true, effect: Replace},
		"nodeName":               {required: true, effect: Replace},
		"overwrite":              {kind: boolean, fallback: true, effect: InPlace},
		"overwriteUnmanaged":     {kind: boolean, fallback: false, effect: InPlace},
		"size":                   {kind: integer, output: true, effect: Replace},
		"uploadTimeout":          {kind: integer, fallback: 600.0, effect: InPlace},
		"url":                    {required: true, effect: Replace, validate: webAddress},
		"verify":                 {kind: boolean, fallback: true, effect: InPlace},
	}
}

// downloadFileType returns the resource type of files that a host downloads.
func downloadFileType() *resourceType {
	return &resourceType{
		token: typeDownloadFile, attributes: downloadFileTable(), framework: true,
		validate: checkFile, suppressDiff: keepSizes, outputChanges: fileSizeChanges,
		create: createFile, read: readFile,
		update: func(ctx context.Context, a *api, id string, plan, _ object) (object, error) {
			size, err := fileSize(ctx, a, id, plan)
			if err != nil {
				return nil, fmt.Errorf("error when reading file from datastore: %w", err)
			}

			plan["size"] = size

			return plan, nil
		},
		remove: removeFile,
	}
}

// checkFile requires a checksum and its algorithm together.
func checkFile(c *checker, in object) {
	for name, other := range map[string]string{"checksum": "checksumAlgorithm", "checksumAlgorithm": "checksum"} {
		if in[name] != nil && in[other] == nil {
			c.fail(name, "attribute %q must be specified when %q is specified", other, name)
		}
	}
}

// keepSizes keeps the sizes of the last refresh.
func keepSizes(plan, state object) {
	for _, name := range []string{previousSizeKey, urlSizeKey} {
		if v, ok := state[name]; ok {
			plan[name] = v
		}
	}
}

// fileSizeChanges replaces a file whose size has changed, or differs from that on the web server. With decompression
// the latter always differs: set overwrite: false.
func fileSizeChanges(plan, state object, found differences) {
	if previous, ok := state[previousSizeKey]; ok && previous != state["size"] && flag(plan, "overwrite") {
		found["size"] = difference{p.Update, Replace}

		return
	}

	if offered, ok := state[urlSizeKey]; ok && plan["url"] == state["url"] && offered != state["size"] {
		found["size"] = difference{p.Update, Replace}
	}
}

// urlMetadata is what the web server reports about a file; the size is that before decompression.
type urlMetadata struct {
	Filename string   `json:"filename"`
	Size     *float64 `json:"size"`
}

func metadata(ctx context.Context, a *api, values object) (urlMetadata, error) {
	var out urlMetadata

	f := form{"url": str(values, "url"), "verify-certificates": formatBool(flag(values, "verify"))}
	if err := a.call(ctx, http.MethodGet, "/nodes/"+str(values, "nodeName")+"/query-url-metadata", f, &out); err != nil {
		return out, fmt.Errorf("error fetching metadata from download url, unexpected error in GetQueryURLMetadata: error retrieving URL metadata for %s: %w", f["url"], err)
	}

	return out, nil
}

func storagePath(values object) string {
	return "/nodes/" + str(values, "nodeName") + "/storage/" + str(values, "datastoreId")
}

// createFile always reads the metadata first, even if it is not needed: it fails here if a host cannot reach the URL.
func createFile(ctx context.Context, a *api, plan object) (string, object, error) {
	ctx, cancel := context.WithTimeout(ctx, seconds(plan, "uploadTimeout"))
	defer cancel()

	offered, err := metadata(ctx, a, plan)
	if err != nil {
		return "", nil, fmt.Errorf("error initiating file download: could not get file metadata, unexpected error: %w", err)
	}

	if str(plan, "fileName") == "" {
		plan["fileName"] = offered.Filename
	}

	name := str(plan, "fileName")
	inside := str(plan, "contentType") + "/" + name
	id := str(plan, "datastoreId") + ":" + inside

	err = fetchFile(ctx, a, plan)
	if exists(err) && flag(plan, "overwriteUnmanaged") {
		if err := deleteVolume(ctx, a, plan, inside); err != nil && !isNotFound(err) {
			return "", nil, fmt.Errorf(
				"error deleting file from datastore: could not delete file '%s', unexpected error: %w", inside, err,
			)
		}

		err = fetchFile(ctx, a, plan)
	}

	switch {
	case exists(err):
		return "", nil, fmt.Errorf("file already exists in the datastore, it was created outside of Terraform or is managed by another resource: '%s', error: %w", name, err)
	case err != nil:
		return "", nil, fmt.Errorf(
			"error downloading file from url: could not download file '%s', unexpected error: %w", name, err,
		)
	}

	if plan["size"], err = fileSize(ctx, a, id, plan); err != nil {
		return id, plan, fmt.Errorf("error when reading file from datastore: %w", err)
	}

	return id, plan, nil
}

// exists reports whether a task failed because there is a file of this name.
func exists(err error) bool {
	return err != nil && strings.Contains(err.Error(), "refusing to override existing file")
}

// fetchFile makes the host download, decompress and verify the file.
func fetchFile(ctx context.Context, a *api, plan object) error {
	f := form{"verify-certificates": formatBool(flag(plan, "verify"))}

	for name, pve := range map[string]string{
		"nodeName":               "node",
		"datastoreId":            "storage",
		"contentType":            "content",
		"checksum":               "checksum",
		"checksumAlgorithm":      "checksum-algorithm",
		"decompressionAlgorithm": "compression", "fileName": "filename", "url": "url",
	} {
		f.setNonEmpty(pve, str(plan, name))
	}

	var upid string
	if err := a.call(ctx, http.MethodPost, storagePath(plan)+"/download-url", f, &upid); err != nil {
		return fmt.Errorf("error download file by URL: %w", err)
	}

	err := a.waitTask(ctx, upid, waitOptions{stopOnInterrupt: true})
	if err == nil {
		return nil
	}

	// A download must not continue after its timeout, and a failed one is cleaned up.
	path := "/nodes/" + str(plan, "nodeName") + "/tasks/" + url.PathEscape(upid)

	stopErr := a.call(context.WithoutCancel(ctx), http.MethodDelete, path, nil, nil)
	if stopErr != nil && !isNotFound(stopErr) {
		err = errors.Join(err, stopErr)
	}

	return fmt.Errorf(
		"error download file to datastore %s: failed waiting for url download: %w", str(plan, "datastoreId"), err,
	)
}

// errNoFile says that a storage does not have a file.
var errNoFile = errors.New("file does not exists in datastore")

// fileSize returns the size of a volume from the list of its storage, which it tries to read ten times.
func fileSize(ctx context.Context, a *api, id string, values object) (any, error) {
	var found []struct {
		Volume string  `json:"volid"`
		Size   float64 `json:"size"`
	}

	err := a.retry(ctx, 10, 0.1, func(err error) bool { return !isNotFound(err) }, func() error {
		return a.call(ctx, http.MethodGet, storagePath(values)+"/content", nil, &found)
	})
	if err != nil {
		return nil, fmt.Errorf(
			"unexpected error when listing datastore files: error listing files from datastore %s: %w",
			str(values, "datastoreId"), err,
		)
	}

	for _, file := range found {
		if file.Volume == id {
			return file.Size, nil
		}
	}

	return nil, errNoFile
}

// readFile treats every error except failed authentication as a missing file, as published.
func readFile(ctx context.Context, a *api, id string, before object) (object, error) {
	state := maps.Clone(before)
	delete(state, previousSizeKey)
	delete(state, urlSizeKey)

	size, err := fileSize(ctx, a, id, before)

	switch {
	case err != nil && (ctx.Err() != nil || strings.Contains(err.Error(), "failed to authenticate")):
		return nil, err
	case err != nil:
		return nil, nil //nolint:nilerr // see above
	}

	if size != before["size"] {
		state[previousSizeKey] = before["size"]
	}

	state["size"] = size

	if flag(before, "overwrite") {
		offered, err := metadata(ctx, a, before)
		if err != nil {
			return nil, fmt.Errorf("could not get file metadata from url: %w", err)
		}

		if offered.Size != nil && *offered.Size != size {
			state[urlSizeKey] = *offered.Size
		}
	}

	return state, nil
}

// deleteVolume retries after every error except a missing volume, like the published provider.
func deleteVolume(ctx context.Context, a *api, values object, volume string) error {
	path := storagePath(values) + "/content/" + url.PathEscape(volume)

	err := a.retry(ctx, 10, 0.1, func(err error) bool { return !isNotFound(err) }, func() error {
		return a.call(ctx, http.MethodDelete, path, nil, nil)
	})
	if err != nil {
		return fmt.Errorf("error deleting file %s from datastore %s: %w", volume, str(values, "datastoreId"), err)
	}

	return nil
}

// removeFile deletes a file; a missing one is no error.
func removeFile(ctx context.Context, a *api, id string, state object) error {
	err := deleteVolume(ctx, a, state, id)
	if err == nil || isNotFound(err) || strings.Contains(err.Error(), "unable to parse") {
		return nil
	}

	return fmt.Errorf("error deleting datastore file: could not delete datastore file '%s', unexpected error: %w", id, err)
}
