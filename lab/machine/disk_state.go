package machine

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"talos-proxmox/lab/image"
	"talos-proxmox/lab/machine/disks"
	"talos-proxmox/lab/machine/etcd"
)

// diskState is what a machine keeps on the STATE and EPHEMERAL partitions of its system disk.
type diskState struct {
	// Configuration is the machine configuration (STATE); empty in maintenance mode.
	Configuration string `json:"configuration,omitempty"`
	// NodeID is the machine's identity in its cluster (STATE).
	NodeID string `json:"nodeId,omitempty"`
	// Volumes are the headers of the volumes that exist, by id.
	Volumes map[string]disks.Header `json:"volumes,omitempty"`
	// Etcd is the etcd data directory (EPHEMERAL).
	Etcd *etcd.Data `json:"etcd,omitempty"`
	// Data names the folder with the files of real etcd and Kubernetes (EPHEMERAL); every wipe begins a new one.
	Data string `json:"data,omitempty"`
	// Kept is what a wipe left of the previous folder; nil = nothing.
	Kept *kept `json:"kept,omitempty"`
	// Previous is the system before the last upgrade, which boots again if the upgrade fails.
	Previous *image.Image `json:"previous,omitempty"`
	// Upgraded is set until the system has finished its first boot after an upgrade. If that boot fails, Talos boots the
	// previous system.
	Upgraded bool `json:"upgraded,omitempty"`
	// KubeletRegistered is set once the kubelet has its client certificate (EPHEMERAL).
	KubeletRegistered bool `json:"kubeletRegistered,omitempty"`
}

// kept is the part of a folder that a wipe of one partition left: etcd's data, or everything else.
type kept struct {
	Folder string `json:"folder"`
	Etcd   bool   `json:"etcd"`
}

// preserve begins a new folder with what a wipe left of the current one.
func (d *diskState) preserve(etcdData bool) {
	switch {
	case d.Data == "":
	case d.Kept != nil && d.Kept.Etcd != etcdData: // both are wiped
		d.Data, d.Kept = "", nil
	case d.Kept == nil:
		d.Data, d.Kept = uuid.NewString(), &kept{Folder: d.Data, Etcd: etcdData}
	}
}

// loadDisk reads the state on the booted disk; a fresh image has none.
func (m *machine) loadDisk() error {
	m.disk = diskState{}

	if m.disks.Volume == "" || len(m.system.State) == 0 {
		return nil
	}

	if err := json.Unmarshal(m.system.State, &m.disk); err != nil {
		m.disk = diskState{}

		return fmt.Errorf("the machine's state on %s is unreadable, it starts in maintenance mode: %w", m.disks.Volume, err)
	}

	return nil
}

// save writes the machine's state to its disk; the caller holds the lock. A machine that runs from an ISO keeps
// nothing.
func (m *machine) save() {
	if m.disks.Volume == "" {
		return
	}

	m.writeSystem(m.installed)
}

// writeSystem writes an operating system with the machine's state to the system disk; the caller holds the lock.
func (m *machine) writeSystem(system image.Image) {
	m.installed = system

	state, err := json.Marshal(m.disk)
	if err != nil {
		panic(err) // a diskState always encodes
	}

	system.State = state

	if err := m.ms.world.WriteVolume(m.disks.Volume, system); err != nil {
		m.problem = fmt.Sprintf("unable to write the disk %s: %s", m.disks.Volume, err)
		m.logfLocked("[talos] I/O error: %s", m.problem)
	}
}

// nodeID returns the machine's node id, which it generates at first use; the caller holds the lock.
func (m *machine) nodeID() string {
	if m.disk.NodeID == "" {
		id := make([]byte, 32)
		_, _ = rand.Read(id) // never fails
		m.disk.NodeID = base64.URLEncoding.EncodeToString(id)
	}

	return m.disk.NodeID
}
