package datacentre

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"talos-proxmox/lab/image"
)

// filePatterns match the file names that a content type accepts.
var filePatterns = map[string]*regexp.Regexp{
	"iso":      regexp.MustCompile(`(?i)^[^/]+\.(?:iso|img)$`),
	"vztmpl":   regexp.MustCompile(`(?i)^[^/]+\.tar\.(?:gz|xz|zst)$`),
	"import":   regexp.MustCompile(`(?i)^[^/]+\.(?:ova|ovf|qcow2|raw|vmdk)$`),
	"snippets": regexp.MustCompile(`^[^/]+$`),
}

// maxDecompressedBytes limits the result of a decompression.
const maxDecompressedBytes = 256 << 20

// Download downloads a URL to a file of a storage, and verifies the checksum of the file before decompression.
func (d *Datacentre) Download(user, hostName, storageName string, r Config) (string, error) {
	s, err := d.checkFile(hostName, storageName, r["content"], r["filename"])
	if err != nil {
		return "", err
	}

	defer d.lockWrite()()

	return d.startTask(user, hostName, "download", r["filename"], func(ctx context.Context, w *worker) error {
		return d.download(ctx, w, s, hostName, r)
	})
}

// Upload writes an uploaded file to a storage.
func (d *Datacentre) Upload(user, hostName, storageName string, r Config, content []byte) (string, error) {
	s, err := d.checkFile(hostName, storageName, r["content"], r["filename"])
	if err != nil {
		return "", err
	}

	defer d.lockWrite()()

	return d.startTask(user, hostName, "imgcopy", "", func(_ context.Context, w *worker) error {
		file, err := d.VolumePath(hostName, s.Name+":"+r["content"]+"/"+r["filename"])
		if err != nil {
			return err
		}

		w.log("starting file import from: /var/tmp/pveupload")
		w.log("target file: %s", file)

		return d.writeFile(s, file, content)
	})
}

func (d *Datacentre) checkFile(hostName, storageName, kind, filename string) (*Storage, error) {
	s, err := d.lookupStorage(hostName, storageName, "")
	if err != nil {
		return nil, err
	}

	if s.Path == "" {
		return nil, Refuse("can't upload to storage type '%s'", s.Type)
	}

	if err := s.checkContent(kind); err != nil {
		return nil, err
	}

	if re := filePatterns[kind]; re == nil || !re.MatchString(filename) {
		complaint := map[string]string{"import": "invalid filename or wrong extension"}[kind]

		return nil, WrongParameter("filename", "%s", cmp.Or(complaint, "wrong file extension"))
	}

	return s, nil
}

func (d *Datacentre) download(ctx context.Context, w *worker, s *Storage, hostName string, r Config) error {
	id := s.Name + ":" + r["content"] + "/" + r["filename"]

	file, err := d.VolumePath(hostName, id)

	// Wait for removals that were requested earlier: a real host completes one in less time than a request takes.
	for _, t := range slices.Clone(d.state.Tasks) {
		if err == nil && t.Type == "imgdel" && t.Host == hostName && t.Running() {
			err = d.withoutLock(func() (err error) {
				_, err = d.WaitTask(ctx, t.UPID)

				return err
			})
		}
	}

	if err != nil {
		return err
	}

	if r["compression"] != "" && r["content"] != "iso" {
		return Refuse("decompression not supported for %s", r["content"])
	}

	if d.findVolume(hostName, id) != nil {
		return d.checkExistingFile(w, hostName, file, r)
	}

	if d.options.Fetch == nil {
		return errors.New("download failed: this data centre has no network")
	}

	w.log("downloading %s to %s", r["url"], file)

	var b []byte

	err = d.withoutLock(func() (err error) {
		b, err = d.options.Fetch(ctx, r["url"])

		return err
	})
	if err != nil {
		w.log("%s", err)

		return errors.New("download failed: exit code 8") // wget's exit code for an HTTP error
	}

	err = cmp.Or(d.sleep(ctx, d.options.Durations.DownloadImage), verifyChecksum(b, r))
	if err != nil {
		return err
	}

	if b, err = decompress(b, r["compression"]); errors.Is(err, errNoDecompression) {
		return err
	} else if err != nil {
		return fmt.Errorf("decompression failed: %w", err)
	}

	// Proxmox reads the untrusted image with qemu-img (PVE::Storage::Plugin, file_size_info; observed on 9.2.6).
	if _, isDisk := image.VirtualSize(b); r["content"] == "import" && path.Ext(file) == ".qcow2" && !isDisk {
		return fmt.Errorf("failed to verify file: qemu-img: Could not open '%s.tmp': Image is not in qcow2 format", file)
	}

	w.log("download of '%s' to '%s' finished", r["url"], file)

	return d.writeFile(s, file, b)
}

// checkExistingFile ends the download of a file that exists: see download_file_from_url of pve-common.
func (d *Datacentre) checkExistingFile(w *worker, hostName, file string, r Config) error {
	if r["checksum"] == "" {
		return fmt.Errorf("refusing to override existing file '%s'", file)
	}

	b, err := os.ReadFile(d.hostPath(hostName, file))
	if err = cmp.Or(err, verifyChecksum(b, r)); err != nil {
		return fmt.Errorf("%w, aborting", err)
	}

	w.log("OK, got correct file already, no need to download")

	return nil
}

// writeFile replaces a file that appeared in the meantime.
func (d *Datacentre) writeFile(s *Storage, file string, b []byte) error {
	if err := d.checkSpace(s, int64(len(b))); err != nil {
		return err
	}

	name := d.hostPath(s.Host, file)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return fmt.Errorf("write '%s': %w", file, err)
	}

	return os.WriteFile(name, b, 0o600)
}

func fileFormat(kind, id string) string {
	switch kind {
	case "iso":
		return "iso"
	case "snippets":
		return "snippet"
	case "vztmpl":
		return "t" + strings.TrimPrefix(path.Ext(id), ".")
	default:
		return strings.TrimPrefix(strings.ToLower(path.Ext(id)), ".")
	}
}

// URLSize downloads a URL and returns its size and file name, like PVE's query-url-metadata.
func (d *Datacentre) URLSize(ctx context.Context, url string) (int64, string, error) {
	if d.options.Fetch == nil {
		return 0, "", Refuse("Can't connect to %s", url)
	}

	b, err := d.options.Fetch(ctx, url)
	if err != nil {
		return 0, "", Refuse("invalid server response: '%s'", err)
	}

	name, _, _ := strings.Cut(path.Base(url), "?")

	return int64(len(b)), name, nil
}

func verifyChecksum(b []byte, r Config) error {
	want, algorithm := r["checksum"], r["checksum-algorithm"]
	if want == "" {
		return nil
	}

	newHash := map[string]func() hash.Hash{"sha256": sha256.New, "sha512": sha512.New}[algorithm]
	if newHash == nil {
		return fmt.Errorf("checksum algorithm '%s': the lab supports sha256 and sha512", algorithm)
	}

	h := newHash()
	h.Write(b)

	if got := hex.EncodeToString(h.Sum(nil)); !strings.EqualFold(got, want) {
		return fmt.Errorf("checksum mismatch: got '%s' != expect '%s'", got, want)
	}

	return nil
}

var errNoDecompression = errors.New("no decompression method found")

func decompress(b []byte, algorithm string) ([]byte, error) {
	switch algorithm {
	case "":
		return b, nil
	case "gz":
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return nil, err
		}

		return io.ReadAll(io.LimitReader(z, maxDecompressedBytes))
	case "zst":
		z, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxDecompressedBytes))
		if err != nil {
			return nil, err
		}
		defer z.Close()

		return z.DecodeAll(b, nil)
	default:
		return nil, errNoDecompression
	}
}
