package enginetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"

	"talos-proxmox/internal/hostfacts"
)

// PreparedHost returns the facts of a large, fully prepared host with an NVIDIA GPU at 0000:01:00, alone in its IOMMU
// group and bound to vfio-pci.
func PreparedHost(name string) *hostfacts.Facts {
	everything := "backup,images,import,iso,rootdir,snippets,vztmpl"

	return &hostfacts.Facts{
		Format: hostfacts.Format,
		System: hostfacts.System{
			Hostname:           name,
			Node:               name,
			Quorate:            true,
			PVE:                "9.1.1",
			Kernel:             "6.17.2-1-pve",
			CPUVendor:          "amd",
			CPUModel:           "AMD EPYC 4464P",
			Cores:              64,
			MemoryKiB:          256 << 20,
			AvailableKiB:       250 << 20,
			UEFI:               true,
			BootLoader:         "systemd-boot",
			BootLoaderEvidence: "the firmware started entry 0001, systemd-boot",
			CommandLineFile:    "/etc/kernel/cmdline",
			CommandLine:        "root=ZFS=rpool/ROOT/pve-1 boot=zfs iommu=pt", BootID: "boot-2",
		},
		IOMMU: hostfacts.IOMMU{Firmware: []string{"IVRS"}, Groups: 20},
		Devices: []hostfacts.Device{
			{
				Address: "0000:00:17.0",
				Vendor:  "1022",
				Device:  "7901",
				Class:   "010601",
				Group:   "3",
				Driver:  "ahci",
				Name:    "SATA controller: AMD FCH",
			},
			{
				Address:         "0000:01:00.0",
				Vendor:          "10de",
				Device:          "27b0",
				Class:           "030000",
				SubsystemVendor: "10de",
				SubsystemDevice: "16fa",
				Group:           "12",
				Driver:          "vfio-pci",
				Name:            "VGA compatible controller: NVIDIA Corporation AD104GL [RTX 4000 SFF Ada Generation]",
			},
			{
				Address:         "0000:01:00.1",
				Vendor:          "10de",
				Device:          "22bc",
				Class:           "040300",
				SubsystemVendor: "10de",
				SubsystemDevice: "16fa",
				Group:           "12",
				Driver:          "vfio-pci",
				Name:            "Audio device: NVIDIA Corporation AD104 High Definition Audio Controller",
			},
		},
		ZFS: hostfacts.ZFS{
			Loaded: true, ARCMax: 16 << 30, ARCWanted: 16 << 30,
			Pools: []hostfacts.Pool{
				{
					Name:        "rpool",
					Size:        2 << 40,
					Free:        1 << 40,
					Health:      "ONLINE",
					Ashift:      12,
					Compression: "on",
					Xattr:       "sa",
					Vdevs:       []string{"mirror-0"},
				},
			},
		},
		Storages: []hostfacts.Storage{
			{Name: "local", Type: "dir", Content: everything, Active: 1, Enabled: 1, Total: 4 << 40, Free: 2 << 40},
			{Name: "local-lvm", Type: "lvmthin", Content: everything, Active: 1, Enabled: 1, Total: 4 << 40, Free: 2 << 40},
			{Name: "local-zfs", Type: "zfspool", Content: everything, Active: 1, Enabled: 1, Total: 4 << 40, Free: 2 << 40},
		},
		Machines: []hostfacts.Guest{}, Containers: []hostfacts.Guest{},
		Prep: hostfacts.Prep{Revision: 1, ChangedInBoot: "boot-1"},
	}
}

func (o Options) facts(name string) *hostfacts.Facts {
	if facts, ok := o.Facts[name]; ok {
		return facts
	}

	return PreparedHost(name)
}

// factsOutput returns what `talosops facts` prints for a request.
func (o Options) factsOutput(request string) (string, error) {
	var query struct{ Hosts []struct{ Name string } }
	if err := json.Unmarshal([]byte(request), &query); err != nil {
		return "", fmt.Errorf("unable to read the request for facts: %w", err)
	}

	answers := []map[string]any{}

	for _, h := range query.Hosts {
		if facts := o.facts(h.Name); facts != nil {
			answers = append(answers, map[string]any{"name": h.Name, "facts": facts})
		} else {
			answers = append(
				answers, map[string]any{"name": h.Name, "error": h.Name + " does not answer at 127.0.0.1:22: connection refused"},
			)
		}
	}

	document, err := json.Marshal(map[string]any{"hosts": answers})

	return string(document), err
}

// prepOutput returns what commands of a host's preparation print: the facts of a prepared host.
func (o Options) prepOutput(name string, inputs resource.PropertyMap) (string, bool) {
	create, known := inputs["create"]
	for _, suffix := range []string{"-apply", "-reboot", "-verify"} {
		if prepared, found := strings.CutSuffix(name, suffix); found && known && create.IsString() {
			facts := o.facts(prepared)
			if facts == nil {
				return "", false
			}

			printed := *facts
			if o.Rebooted && suffix == "-verify" {
				printed = *PreparedHost(prepared)
			}

			printed.Prep.Applied, printed.Prep.Changes = facts.Prep.Changes, nil

			document, err := json.Marshal(&printed)
			if err != nil {
				panic(errors.Join(errors.New("facts always marshal"), err))
			}

			return string(document), true
		}
	}

	return "", false
}
