package datacentre

import (
	"crypto/sha1" //nolint:gosec // Proxmox' own digest, no protection
	"encoding/hex"
	"encoding/json"
)

// Mapping is a PCI hardware mapping of the cluster.
type Mapping struct {
	ID          string `json:"id"`
	Description string `json:"description,omitempty"`
	MDev        bool   `json:"mdev,omitempty"`
	// Map are property strings: id=10de:1b80,node=pve1,path=0000:01:00.0,iommugroup=1,subsystem-id=…
	Map []string `json:"map"`
}

// SetMapping adds or replaces a PCI mapping.
func (d *Datacentre) SetMapping(m Mapping) { put(d, d.state.Mappings, m.ID, m) }

// DeleteMapping removes a PCI mapping.
func (d *Datacentre) DeleteMapping(id string) { remove(d, d.state.Mappings, id, "") }

// Mappings returns the PCI mappings by id.
func (d *Datacentre) Mappings() map[string]Mapping { return copied(d, d.state.Mappings) }

// MappingDigest is that of the file with all PCI mappings, which Proxmox compares before a change.
func (d *Datacentre) MappingDigest() string {
	b, err := json.Marshal(d.Mappings())
	if err != nil {
		panic(err) // texts and truth values
	}

	sum := sha1.Sum(b) //nolint:gosec // as above

	return hex.EncodeToString(sum[:])
}
