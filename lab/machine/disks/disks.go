// Package disks is a machine's block devices: their names, the partitions of the system disk, the volumes of the
// configuration, and what the Talos API says of them.
package disks

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"talos-proxmox/lab/datacentre"
)

// Disks are a machine's block devices. The machine's lock guards them.
type Disks struct {
	// Volume is the one that the system runs from; empty on an ISO.
	Volume string

	devices []Device
}

// Device is a disk as the kernel names it.
type Device struct {
	datacentre.GuestDisk

	Name string // "sda"
	bus  string // "scsi", "virtio", "ide", "sata"
}

// New names a machine's disks in the kernel's way: SCSI, SATA and IDE disks share sda, sdb, …; CD-ROMs are sr0, …
func New(disks []datacentre.GuestDisk) *Disks {
	devices := make([]Device, 0, len(disks))
	for _, d := range disks {
		devices = append(devices, Device{GuestDisk: d, bus: strings.TrimRight(d.Interface, "0123456789")})
	}

	order := map[string]int{"virtio": 0, "scsi": 1, "sata": 2, "ide": 3}

	slices.SortStableFunc(devices, func(a, b Device) int {
		return cmp.Or(
			cmp.Compare(order[a.bus], order[b.bus]), cmp.Compare(deviceIndex(a.Interface), deviceIndex(b.Interface)),
		)
	})

	count := map[string]int{}

	for i := range devices {
		d := &devices[i]

		prefix := "sd"
		if d.bus == "virtio" {
			prefix = "vd"
		}

		if d.CDROM {
			d.Name = "sr" + strconv.Itoa(count["sr"])
			count["sr"]++

			continue
		}

		d.Name = prefix + string(rune('a'+count[prefix]))
		count[prefix]++
	}

	return &Disks{devices: devices}
}

func deviceIndex(name string) int {
	n, _ := strconv.Atoi(strings.TrimLeft(name, "abcdefghijklmnopqrstuvwxyz"))

	return n
}

// Devices are all of them, in the order of their buses.
func (ds *Disks) Devices() []Device { return ds.devices }

// System is the device that the machine runs from; false on an ISO.
func (ds *Disks) System() (Device, bool) {
	i := slices.IndexFunc(ds.devices, ds.runsFrom)
	if i < 0 {
		return Device{}, false
	}

	return ds.devices[i], true
}

// runsFrom says that the system runs from the device.
func (ds *Disks) runsFrom(d Device) bool { return ds.Volume != "" && d.Volume == ds.Volume }

// ForInstall finds the disk that a configuration names for the system.
func (ds *Disks) ForInstall(cfg config.Provider) (Device, error) {
	if cfg.Machine().Install().Disk() == "" {
		return Device{}, errors.New("the lab's machines install to the disk that machine.install.disk names")
	}

	name := strings.TrimPrefix(filepath.Clean(cfg.Machine().Install().Disk()), "/dev/")

	for _, d := range ds.devices {
		if d.Name == name && !d.CDROM {
			return d, nil
		}
	}

	return Device{}, fmt.Errorf("lstat /dev/%s: no such file or directory", name)
}

const mebibyte = 1 << 20

// Partition is a volume on the system disk.
type Partition struct {
	Device string
	// Mount is where its file system is; empty without one.
	Mount string
	Size  uint64

	label string
	index int
}

// Partitions are the partitions of the system disk: fixed sizes, and the rest for EPHEMERAL. Its growth to the disk's
// size is Talos' own.
func (ds *Disks) Partitions() []Partition {
	d, ok := ds.System()
	if !ok {
		return nil
	}

	list := []Partition{
		{label: "EFI", index: 1, Size: 2 * 1024 * mebibyte},
		{label: "META", index: 2, Size: mebibyte},
		{label: "STATE", index: 3, Size: 100 * mebibyte, Mount: "/system/state"},
	}

	rest := uint64(d.SizeBytes)

	for _, v := range list {
		rest -= min(rest, v.Size)
	}

	list = append(
		list,
		Partition{label: constants.EphemeralPartitionLabel, index: 4, Size: rest - min(rest, 2*mebibyte), Mount: "/var"},
	)
	for i := range list {
		list[i].Device = fmt.Sprintf("/dev/%s%d", d.Name, list[i].index)
	}

	return list
}
