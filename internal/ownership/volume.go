package ownership

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
)

// VolumesVMID is the VMID in the names of volumes that outlive machines, the last one that Proxmox has. Proxmox deletes
// a volume with the VM whose VMID is in its name, and with no other (qemu-server 9.2.6, destroy_vm): no VM may have it.
const VolumesVMID = 999999999

// Volume is a volume that outlives its machine. Proxmox has no description of volumes, so that the name says whose it
// is.
type Volume struct {
	StackID string
	Machine string // its name
	Name    string // letters and digits
}

// VolumeFor returns a volume of a stack's machine. A stack without an id has one of its name.
func (o Owner) VolumeFor(machine, name string) Volume {
	return Volume{StackID: o.shortID(), Machine: machine, Name: name}
}

// shortID returns the stack's id, for names in Proxmox.
func (o Owner) shortID() string {
	digest := sha256.Sum256([]byte(o.Name))

	return cmp.Or(o.ID, hex.EncodeToString(digest[:8]))
}

// File returns the name with which the volume is created: directories need the extension, other types of datastores
// accept it.
func (v Volume) File() string {
	return fmt.Sprintf("vm-%d-%s-%s-%s.raw", VolumesVMID, v.StackID, v.Machine, v.Name)
}

var volumePattern = regexp.MustCompile(fmt.Sprintf(
	`(?:^|[:/])vm-%d-([0-9a-z]+)-([0-9a-z-]+)-([0-9a-z]+)\.raw$`, VolumesVMID,
))

// VolumeOf returns the volume of an id, such as local-lvm:vm-…, or of a path in a datastore; false = it is none that
// outlives its machine.
func VolumeOf(id string) (Volume, bool) {
	match := volumePattern.FindStringSubmatch(id)
	if match == nil {
		return Volume{}, false
	}

	return Volume{StackID: match[1], Machine: match[2], Name: match[3]}, true
}
