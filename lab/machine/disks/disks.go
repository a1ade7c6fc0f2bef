// Package disks is a machine's block devices: their names, the partitions of the system disk, the volumes of the
// configuration, and the storage service of the Talos API.
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
	"github.com/siderolabs/talos/pkg/machinery/resources/block"

	"talos-proxmox/lab/datacentre"
)

// Disks are a machine's block devices. The machine's lock guards them.
type Disks struct {
	// Volume is the volume that the system runs from; empty on an ISO.
	Volume string

	devices []Device
	opened  map[string]opened // volumes with a file system of their own, by id; nil = the boot has not come so far
}

// Device is a disk with its kernel name.
type Device struct {
	datacentre.GuestDisk

	Name string // "sda"
	bus  string // "scsi", "virtio", "ide", "sata"
}

// New names a machine's disks like the kernel: SCSI, SATA and IDE disks share sda, sdb, …; CD-ROMs are sr0, …
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

// Devices returns all devices in the order of their buses.
func (ds *Disks) Devices() []Device { return ds.devices }

// System returns the device that the machine runs from; false on an ISO.
func (ds *Disks) System() (Device, bool) {
	i := slices.IndexFunc(ds.devices, ds.isSystemDisk)
	if i < 0 {
		return Device{}, false
	}

	return ds.devices[i], true
}

// isSystemDisk reports whether the system runs from the device.
func (ds *Disks) isSystemDisk(d Device) bool { return ds.Volume != "" && d.Volume == ds.Volume }

// InstallDisk returns the disk to which a configuration installs.
func (ds *Disks) InstallDisk(cfg config.Provider) (Device, error) {
	if unattended := cfg.UnattendedInstallConfig(); unattended != nil {
		for _, d := range ds.devices {
			if !d.CDROM && ds.matches(unattended.VolumeSelector(), d) {
				return d, nil
			}
		}

		return Device{}, errors.New("no disk matched the selector")
	}

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

// partitions returns the partitions of the system disk: fixed sizes, and the rest for EPHEMERAL, which Talos grows.
func (ds *Disks) partitions() []volume {
	d, ok := ds.System()
	if !ok {
		return nil
	}

	list := []volume{
		{id: "EFI", size: 2 * 1024 * mebibyte},
		{id: constants.MetaPartitionLabel, size: mebibyte},
		{id: constants.StatePartitionLabel, size: 100 * mebibyte, mount: "/system/state"},
		{id: constants.EphemeralPartitionLabel, size: uint64(d.SizeBytes), mount: "/var"},
	}

	rest := &list[len(list)-1]

	for i := range list {
		v := &list[i]
		v.kind, v.disk, v.partition = block.VolumeTypePartition, d, i+1

		if v != rest {
			rest.size -= min(rest.size, v.size)
		}
	}

	rest.size -= min(rest.size, 2*mebibyte)

	return list
}
