// Package image describes the content of a disk, an ISO or an image file of the lab: an operating system, by name only,
// and the state that its machine has written.
package image

import (
	"encoding/json"
	"fmt"
)

// Image is the content of a volume. The Image Factory serves it as the body of its downloads, compressed if the name
// says so; the data centre copies it from file to disk and from template to clone; the machine that boots from it reads
// and rewrites it.
type Image struct {
	// OS is "talos", another system's name such as "debian", or empty for a blank disk.
	OS string `json:"os,omitempty"`
	// Version is the release with its "v", such as "v1.12.6".
	Version string `json:"version,omitempty"`
	// Schematic is the id of the image's schematic in the Image Factory.
	Schematic string `json:"schematic,omitempty"`
	// Platform is Talos' platform: "nocloud" or "metal".
	Platform string `json:"platform,omitempty"`
	// Arch is "amd64" or "arm64".
	Arch string `json:"arch,omitempty"`
	// SecureBoot is set if Talos is signed with the keys of the Image Factory, EnrollsKeys if the image brings these keys
	// along for firmware in setup mode. What an installer writes does not.
	SecureBoot  bool `json:"secureBoot,omitempty"`
	EnrollsKeys bool `json:"enrollsKeys,omitempty"`
	// Agent is set if a system other than Talos has the QEMU guest agent; Talos' is an extension.
	Agent bool `json:"agent,omitempty"`
	// Live is set if the image is an ISO, which runs without being installed.
	Live bool `json:"live,omitempty"`
	// State is what the machine stores on the disk (configuration, etcd, META), in the machine's own format.
	State json.RawMessage `json:"state,omitempty"`
}

// Encode returns the bytes of the image.
func (i Image) Encode() []byte {
	b, err := json.Marshal(i)
	if err != nil { // State holds invalid JSON: a programming error.
		panic(err)
	}

	return b
}

// Decode reads an image. Other bytes, such as a compressed file, are an error: they are not bootable.
func Decode(b []byte) (Image, error) {
	var i Image
	if len(b) == 0 {
		return i, nil
	}

	if _, ok := VirtualSize(b); ok {
		b = b[qcow2Sector:]
	}

	if err := json.Unmarshal(b, &i); err != nil {
		return Image{}, fmt.Errorf("no bootable image: %w", err)
	}

	return i, nil
}
