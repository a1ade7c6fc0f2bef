package factory

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"talos-proxmox/internal/talos"
	"talos-proxmox/lab/image"
)

// imageFile is the parsed name of an image file: <platform>-<arch>[-secureboot].<format>.
type imageFile struct {
	platform, arch, format string
	secureBoot             bool
}

// platforms are the platforms of Talos that the lab's machines can boot.
func platforms() []string { return []string{"nocloud", "metal"} }

// diskBytes is the size of the disk in a disk image: 1246 MiB.
const diskBytes = 1246 << 20

// formats are the image formats that the program and template builds download.
func formats() []string { return []string{"iso", "qcow2", "raw.zst"} }

func parseImageFile(name string) (imageFile, error) {
	stem, format, found := strings.Cut(name, ".")
	stem, secureBoot := strings.CutSuffix(stem, "-secureboot")
	platform, arch, dashed := strings.Cut(stem, "-")

	switch {
	case !found || !dashed:
		return imageFile{}, fmt.Errorf("invalid profile path: %q", name)
	case !slices.Contains(platforms(), platform):
		return imageFile{}, fmt.Errorf("invalid platform: %q", platform)
	case arch != "amd64" && arch != "arm64":
		return imageFile{}, fmt.Errorf("invalid architecture: %q", arch)
	}

	if !slices.Contains(formats(), format) {
		return imageFile{}, fmt.Errorf("invalid image format: %q", format)
	}

	return imageFile{platform: platform, arch: arch, format: format, secureBoot: secureBoot}, nil
}

// body returns the bytes of the file.
func (f imageFile) body(version, schematic string) ([]byte, error) {
	release, err := talos.ReleaseOf(version)
	if err != nil {
		return nil, err
	}

	isLive := f.format == "iso"
	made := image.Image{
		OS: "talos", Version: version, Schematic: schematic, Platform: f.platform, Arch: f.arch, Live: isLive,
		SecureBoot: f.secureBoot, EnrollsKeys: f.secureBoot && (isLive || release.DiskImagesEnrollKeys),
	}

	switch f.format {
	case "qcow2":
		return made.EncodeQCOW2(diskBytes), nil
	case "iso":
		return made.Encode(), nil
	}

	var b bytes.Buffer

	w, err := zstd.NewWriter(&b)
	if err != nil {
		return nil, fmt.Errorf("compress %s: %w", f.format, err)
	}

	if _, err := w.Write(made.Encode()); err != nil {
		return nil, fmt.Errorf("compress %s: %w", f.format, err)
	}

	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("compress %s: %w", f.format, err)
	}

	return b.Bytes(), nil
}
