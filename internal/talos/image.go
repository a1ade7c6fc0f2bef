package talos

import (
	"crypto/sha256"
	"fmt"
	"path"
	"strings"
)

// ImageName says what is in an image, a disk's or an ISO. It is the image's name in the state; on a host, the name of a
// stack's file has the stack in it, see [ImageFile].
func ImageName(schematicID, version, platform string, iso bool) string {
	extension := "img"
	if iso {
		extension = "iso"
	}

	return fmt.Sprintf("talos-%s-%.12s-%s-%s.%s", version, schematicID, platform, Arch, extension)
}

// ImageFile returns the name under which a host keeps a stack's file of an image; PVE accepts only .iso and .img as
// content type iso. Stacks that share a host share no file: what one of them deletes or downloads again is its own.
func ImageFile(image, owner string) string {
	digest := sha256.Sum256([]byte(owner))
	extension := path.Ext(image)

	return fmt.Sprintf("%s-%x%s", strings.TrimSuffix(image, extension), digest[:4], extension)
}
