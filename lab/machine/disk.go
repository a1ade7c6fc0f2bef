package machine

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"talos-proxmox/lab/image"
	"talos-proxmox/lab/machine/etcd"
)

// diskState is what a machine keeps on its system disk: the STATE and EPHEMERAL partitions.
type diskState struct {
	// Configuration is the machine configuration (STATE); empty in maintenance mode.
	Configuration string `json:"configuration,omitempty"`
	// NodeID is the machine's identity in its cluster (STATE).
	NodeID string `json:"nodeId,omitempty"`
	// Etcd is the etcd data directory (EPHEMERAL).
	Etcd *etcd.Data `json:"etcd,omitempty"`
	// Data names the folder in which real etcd and Kubernetes keep their files (EPHEMERAL); a new one after every wipe.
	Data string `json:"data,omitempty"`
	// Kept is what stays of the folder before Data's; nil = nothing, or there was none.
	Kept *kept `json:"kept,omitempty"`
	// Previous is the system before the last upgrade, which an upgrade that fails boots again.
	Previous *image.Image `json:"previous,omitempty"`
	// Upgraded says that the system has not finished a boot since it was installed by an upgrade: when it fails to, Talos
	// boots the one before.
	Upgraded bool `json:"upgraded,omitempty"`
	// KubeletRegistered says that the kubelet has its client certificate (EPHEMERAL).
	KubeletRegistered bool `json:"kubeletRegistered,omitempty"`
}

// kept is what a wipe of one of two partitions leaves in a folder: etcd's data, or all other.
type kept struct {
	Folder string `json:"folder"`
	Etcd   bool   `json:"etcd"`
}

// preserve begins another folder with what a wipe leaves of the present one.
func (d *diskState) preserve(etcdData bool) {
	switch {
	case d.Data == "":
	case d.Kept != nil && d.Kept.Etcd != etcdData: // both were wiped
		d.Data, d.Kept = "", nil
	case d.Kept == nil:
		d.Data, d.Kept = uuid.NewString(), &kept{Folder: d.Data, Etcd: etcdData}
	}
}

// loadDisk reads the state of the booted disk; a fresh image has none.
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

// nodeID returns the machine's node id, made at first use; the caller holds the lock.
func (m *machine) nodeID() string {
	if m.disk.NodeID == "" {
		id := make([]byte, 32)
		_, _ = rand.Read(id) // never fails
		m.disk.NodeID = base64.URLEncoding.EncodeToString(id)
	}

	return m.disk.NodeID
}
