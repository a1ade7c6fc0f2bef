package datacentre_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// hostFiles is a file system of hosts in memory.
type hostFiles struct {
	mu    sync.Mutex
	files map[string][]byte
}

func (f *hostFiles) ReadFile(host, path string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	b, ok := f.files[host+path]
	if !ok {
		return nil, fs.ErrNotExist
	}

	return b, nil
}

func (f *hostFiles) WriteFile(host, path string, b []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.files[host+path] = b

	return nil
}

func (f *hostFiles) RemoveFile(host, path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()

	if _, ok := f.files[host+path]; !ok {
		return fs.ErrNotExist
	}

	delete(f.files, host+path)

	return nil
}

func (f *hostFiles) ListFiles(host, folder string) (map[string]int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	list := map[string]int64{}

	for path, content := range f.files {
		if name, inside := strings.CutPrefix(path, host+folder+"/"); inside && !strings.Contains(name, "/") {
			list[name] = int64(len(content))
		}
	}

	return list, nil
}

func TestFilesLieInTheHostsFileSystem(t *testing.T) {
	t.Parallel()

	const file = "/var/lib/vz/template/iso/talos.img"

	d, files := open(t, fastOptions()), &hostFiles{files: map[string][]byte{}}
	d.SetHostFiles(files)

	do := ok(t, d)
	do(
		d.Download(
			root, "pve1", "local",
			datacentre.DownloadRequest{URL: "https://factory.lab/talos", Content: "iso", Filename: "talos.img"},
		),
	)
	assert.Equal(t, talos.Encode(), files.files["pve1"+file])

	path, err := d.VolumePath("pve1", "local:iso/talos.img")
	require.NoError(t, err)
	assert.Equal(t, file, path)

	require.NoError(t, files.WriteFile("pve1", "/root/own.raw", talos.Encode()))
	do(d.CreateVM(root, "pve1", 100, datacentre.Config{"scsi0": "local-lvm:0,import-from=/root/own.raw"}))

	img, err := d.ReadVolume("local-lvm:vm-100-disk-0")
	require.NoError(t, err)
	assert.Equal(t, talos, img, "a script's own file can be imported")

	do(d.DeleteVolume(root, "pve1", "local:iso/talos.img"))
	assert.NotContains(t, files.files, "pve1"+file)

	request := datacentre.DownloadRequest{URL: "https://factory.lab/talos", Content: "iso", Filename: "talos.img"}

	require.NoError(t, files.WriteFile("pve1", file, []byte("a script's")))

	upid, err := d.Download(root, "pve1", "local", request)
	assert.Contains(t, exit(t, d, upid, err), "refusing to override existing file", "a script's file is in the way")
	require.NoError(t, files.RemoveFile("pve1", file))
	do(d.Download(root, "pve1", "local", request))
	require.NoError(t, files.RemoveFile("pve1", file))
	do(d.DeleteVolume(root, "pve1", "local:iso/talos.img"))
}

func TestDownloadsAreDecompressed(t *testing.T) {
	t.Parallel()

	plain := talos.Encode()

	var zipped bytes.Buffer

	z := gzip.NewWriter(&zipped)
	_, err := z.Write(plain)
	require.NoError(t, err)
	require.NoError(t, z.Close())

	encoder, err := zstd.NewWriter(nil)
	require.NoError(t, err)

	bodies := map[string][]byte{"": plain, "gz": zipped.Bytes(), "zst": encoder.EncodeAll(plain, nil)}

	for compression, body := range bodies {
		t.Run("compression "+compression, func(t *testing.T) {
			t.Parallel()

			o := fastOptions()
			o.Fetch = func(context.Context, string) ([]byte, error) { return body, nil }
			d := open(t, o)
			sum := sha256.Sum256(body)
			request := datacentre.DownloadRequest{
				URL: "https://f/x", Content: "iso", Filename: "x.img", Compression: compression,
			}
			request.Checksum, request.ChecksumAlgorithm = hex.EncodeToString(sum[:]), "sha256"
			ok(t, d)(d.Download(root, "pve1", "local", request))

			img, err := d.ReadVolume("local:iso/x.img")
			require.NoError(t, err)
			assert.Equal(t, talos, img)

			size, name, err := d.URLSize(t.Context(), "https://f/x.raw.zst?a=b")
			require.NoError(t, err)
			assert.Equal(t, int64(len(body)), size)
			assert.Equal(t, "x.raw.zst", name)
		})
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()

	for bytes, text := range map[int64]string{
		20 * datacentre.GiB: "20G", 540672: "528K", 1000: "1000", 4 << 20: "4M", 2 << 40: "2T", 1246 << 20: "1246M", 0: "0",
	} {
		assert.Equal(t, text, datacentre.FormatSize(bytes))

		n, err := datacentre.ParseSize(text)
		require.NoError(t, err)
		assert.Equal(t, bytes, n)
	}

	_, err := datacentre.ParseSize("much")
	require.Error(t, err)
}
