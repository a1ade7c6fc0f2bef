package talos

import (
	"crypto/sha256"
	"fmt"
	"path"
	"strings"
)

// ImageName returns a name for an image (a disk image, or an ISO) that describes its contents. The state has this name;
// the name of the file on a host depends on the stack, too, see [ImageFile].
func ImageName(schematicID, version string, kind Kind, extension string) string {
	return fmt.Sprintf("talos-%s-%.12s-%s-%s%s.%s", version, schematicID, kind.Platform, Arch, kind.suffix(), extension)
}

// ImageFile returns the name of a stack's file of an image on a host; PVE accepts only .iso and .img as content type
// iso, and needs .qcow2 as import. Stacks that share a host share no files, so that none deletes or replaces another's.
func ImageFile(image, owner string) string {
	digest := sha256.Sum256([]byte(owner))
	extension := path.Ext(image)

	return fmt.Sprintf("%s-%x%s", strings.TrimSuffix(image, extension), digest[:4], extension)
}
