package machine

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"proxmox-talos/lab/datacentre"
	"proxmox-talos/lab/image"
)

// diskState is what a machine keeps on its system disk: the STATE, META and EPHEMERAL partitions.
type diskState struct {
	// Configuration is the machine configuration (STATE); empty in maintenance mode.
	Configuration string `json:"configuration,omitempty"`
	// NodeID is the machine's identity in its cluster (STATE).
	NodeID string `json:"nodeId,omitempty"`
	// META are the values of the META partition.
	META map[uint8]string `json:"meta,omitempty"`
	// Etcd is the etcd data directory (EPHEMERAL).
	Etcd *etcdData `json:"etcd,omitempty"`
	// Data names the folder in which real etcd and Kubernetes keep their files (EPHEMERAL); a new one after every wipe.
	Data string `json:"data,omitempty"`
	// Previous is the system before the last upgrade, which a rollback boots.
	Previous *image.Image `json:"previous,omitempty"`
	// Upgraded says that the system has not finished a boot since it was installed by an upgrade: when it fails to, Talos boots the one before.
	Upgraded bool `json:"upgraded,omitempty"`
	// KubeletRegistered says that the kubelet has its client certificate (EPHEMERAL).
	KubeletRegistered bool `json:"kubeletRegistered,omitempty"`
}

// loadDisk reads the state of the booted disk; a fresh image has none, but META values of its schematic.
func (m *machine) loadDisk() error {
	m.disk = diskState{META: maps.Clone(m.schematic.META)}

	if m.volume == "" || len(m.system.State) == 0 {
		return nil
	}

	m.disk = diskState{}
	if err := json.Unmarshal(m.system.State, &m.disk); err != nil {
		m.disk = diskState{}

		return fmt.Errorf("the machine's state on %s is unreadable, it starts in maintenance mode: %w", m.volume, err)
	}

	return nil
}

// save writes the machine's state to its disk; the caller holds the lock. A machine that runs from an ISO keeps nothing.
func (m *machine) save() {
	if m.volume == "" {
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

	if err := m.ms.world.WriteVolume(m.volume, system); err != nil {
		m.problem = fmt.Sprintf("unable to write the disk %s: %s", m.volume, err)
		m.logf("[talos] I/O error: %s", m.problem)
	}
}

// identity returns the machine's node id, made at first use; the caller holds the lock.
func (m *machine) identity() string {
	if m.disk.NodeID == "" {
		id := make([]byte, 32)
		_, _ = rand.Read(id) // never fails
		m.disk.NodeID = base64.URLEncoding.EncodeToString(id)
	}

	return m.disk.NodeID
}

// blockDevice is a disk as the kernel names it.
type blockDevice struct {
	datacentre.GuestDisk
	name string // "sda"
	bus  string // "scsi", "virtio", "ide", "sata"
}

// blockDevices names the machine's disks in the kernel's way: SCSI, SATA and IDE disks share sda, sdb, …; CD-ROMs are sr0, …
func (m *machine) blockDevices() []blockDevice {
	devices := make([]blockDevice, 0, len(m.hw.Disks))
	for _, d := range m.hw.Disks {
		devices = append(devices, blockDevice{GuestDisk: d, bus: strings.TrimRight(d.Interface, "0123456789")})
	}

	order := map[string]int{"virtio": 0, "scsi": 1, "sata": 2, "ide": 3}
	slices.SortStableFunc(devices, func(a, b blockDevice) int {
		return cmp.Or(cmp.Compare(order[a.bus], order[b.bus]), cmp.Compare(deviceIndex(a.Interface), deviceIndex(b.Interface)))
	})

	count := map[string]int{}

	for i := range devices {
		d := &devices[i]

		prefix := "sd"
		if d.bus == "virtio" {
			prefix = "vd"
		}

		if d.CDROM {
			d.name = "sr" + strconv.Itoa(count["sr"])
			count["sr"]++

			continue
		}

		d.name = prefix + string(rune('a'+count[prefix]))
		count[prefix]++
	}

	return devices
}

func deviceIndex(name string) int {
	n, _ := strconv.Atoi(strings.TrimLeft(name, "abcdefghijklmnopqrstuvwxyz"))

	return n
}

// systemDisk is the device that the machine runs from; false on an ISO.
func (m *machine) systemDisk() (blockDevice, bool) {
	for _, d := range m.blockDevices() {
		if m.volume != "" && d.Volume == m.volume {
			return d, true
		}
	}

	return blockDevice{}, false
}
