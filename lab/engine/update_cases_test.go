package engine_test

import (
	"fmt"
	"maps"

	"talos-proxmox/lab/providers/proxmoxve"
)

// updates are the changes by path.
func updates() map[string]update {
	out := map[string]update{}
	for _, part := range []map[string]update{
		identityUpdates(), hardwareUpdates(), deviceUpdates(), driveUpdates(), cloudInitUpdates(),
	} {
		maps.Copy(out, part)
	}

	for _, name := range []string{"Clone", "Create", "Migrate", "Reboot", "ShutdownVm", "StartVm", "StopVm"} {
		out["timeout"+name] = update{from: 600, to: 700}
	}

	return out
}

func identityUpdates() map[string]update {
	return map[string]update{
		"description":       {from: "a", to: "b"},
		"migrate":           {from: false, to: true},
		"name":              {from: "before", to: "after"},
		"nodeName":          {from: "pve1", to: "pve2"},
		"onBoot":            {from: true, to: false},
		"poolId":            {from: nil, to: "lab"},
		"protection":        {from: false, to: true},
		"reboot":            {from: false, to: true},
		"started":           {from: true, to: false},
		"stopOnDestroy":     {from: true, to: false},
		"tags":              {from: []any{"a"}, to: []any{"b"}},
		"template":          {from: false, to: true},
		"vmId":              {from: 2900, to: 2901},
		"clone.vmId":        {from: 900, to: 901},
		"clone.full":        {from: true, to: false, with: cloned()},
		"clone.retries":     {from: 1, to: 2, with: cloned()},
		"clone.nodeName":    {from: nil, to: "pve1", with: cloned()},
		"clone.datastoreId": {from: nil, to: "local-lvm", with: cloned()},
		"startup.order":     {from: 1, to: 2},
		"startup.upDelay":   {from: 1, to: 2},
		"startup.downDelay": {from: 1, to: 2},
	}
}

func cloned() object { return object{"clone": object{"vmId": 900}} }

func hardwareUpdates() map[string]update {
	return map[string]update{
		"acpi":          {from: true, to: false},
		"bios":          {from: "seabios", to: "ovmf"},
		"bootOrders":    {from: []any{"scsi0", "ide0"}, to: []any{"ide0", "scsi0"}},
		"agent.enabled": {from: false, to: true, with: object{"agent": object{"timeout": "1s"}}},
		"agent.timeout": {from: "5m", to: "6m"},
		"agent.trim":    {from: false, to: true}, "agent.type": {from: "virtio", to: "isa"},
		"cpu.affinity":         {from: nil, to: "0-1"},
		"cpu.cores":            {from: 1, to: 2},
		"cpu.hotplugged":       {from: nil, to: 1},
		"cpu.limit":            {from: 1, to: 2},
		"cpu.numa":             {from: false, to: true},
		"cpu.sockets":          {from: 1, to: 2},
		"cpu.type":             {from: "host", to: "x86-64-v2-AES"},
		"cpu.units":            {from: 1024, to: 2048},
		"keyboardLayout":       {from: "en-us", to: "de"},
		"machine":              {from: "pc", to: "q35"},
		"memory.dedicated":     {from: 512, to: 768},
		"memory.floating":      {from: 0, to: 256},
		"memory.hugepages":     {from: nil, to: "2", with: object{"cpu": object{"numa": true}}},
		"operatingSystem.type": {from: "l26", to: "other"},
		"scsiHardware":         {from: "virtio-scsi-pci", to: "virtio-scsi-single"},
		"tabletDevice":         {from: true, to: false},
		"vga.memory":           {from: 16, to: 32},
		"vga.type":             {from: "std", to: "virtio"},
	}
}

func deviceUpdates() map[string]update {
	out := map[string]update{
		"serialDevices[].device": {from: "socket", to: "/dev/ttyS0"},
		"hostpcis[].mapping":     gpu(3, "gpu", "card"),
		"hostpcis[].pcie":        gpu(4, false, true),
		"hostpcis[].rombar":      gpu(5, true, false),
		"hostpcis[].xvga":        gpu(6, false, true),
		"usbs[].mapping":         stick("zigbee", "zwave"),
		"usbs[].usb3":            stick(false, true),
	}

	for name, values := range map[string][2]any{
		"disconnected": {false, true},
		"enabled":      {true, false},
		"firewall":     {false, true},
		"macAddress":   {"02:00:00:00:00:0A", "02:00:00:00:00:0B"},
		"model":        {"virtio", "e1000"},
		"mtu":          {nil, 1400},
		"queues":       {nil, 4},
		"vlanId":       {nil, 10},
	} {
		out["networkDevices[]."+name] = update{from: values[0], to: values[1]}
	}

	return out
}

// gpu changes the GPU of a VM on its own host.
func gpu(host int, from, to any) update {
	return update{from: from, to: to, with: object{
		"nodeName": fmt.Sprintf("pve%d", host),
		"machine":  "q35",
		"hostpcis": []any{object{"device": "hostpci0", "mapping": "gpu", "pcie": true, "rombar": true}},
	}}
}

// stick changes the USB device of a VM.
func stick(from, to any) update {
	return update{from: from, to: to, with: object{"usbs": []any{object{"mapping": "zigbee", "usb3": true}}}}
}

func driveUpdates() map[string]update {
	return map[string]update{
		"cdrom.enabled":           {from: true, to: false},
		"cdrom.fileId":            {from: "local:iso/talos.iso", to: "none"},
		"cdrom.interface":         {from: "ide0", to: "ide2"},
		"efiDisk.datastoreId":     efi("local-lvm", "local-zfs"),
		"efiDisk.fileFormat":      efi("raw", "qcow2"),
		"efiDisk.preEnrolledKeys": efi(false, true),
		"efiDisk.type":            efi("4m", "2m"),
		"tpmState.datastoreId":    tpm("local-lvm", "local-zfs"),
		"tpmState.version":        tpm("v2.0", "v1.2"),
		"disks[].aio":             {from: "io_uring", to: "native"},
		"disks[].backup":          {from: true, to: false},
		"disks[].cache":           {from: "none", to: "writeback"},
		"disks[].datastoreId":     {from: "local-lvm", to: "local-zfs"},
		"disks[].discard":         {from: "ignore", to: "on"},
		"disks[].fileFormat":      {from: "raw", to: "qcow2"},
		"disks[].interface":       {from: "scsi0", to: "scsi1"},
		"disks[].iothread":        {from: false, to: true},
		"disks[].replicate":       {from: true, to: false},
		"disks[].size":            {from: 2, to: 3},
		"disks[].ssd":             {from: false, to: true},
	}
}

func tpm(from, to any) update {
	return update{from: from, to: to, with: object{"tpmState": object{"datastoreId": "local-lvm", "version": "v2.0"}}}
}

func efi(from, to any) update {
	return update{
		from: from, to: to, with: object{"bios": "ovmf", "efiDisk": object{"datastoreId": "local-lvm", "type": "4m"}},
	}
}

func cloudInitUpdates() map[string]update {
	out := map[string]update{}

	for name, values := range map[string][2]any{
		"datastoreId":              {"local-lvm", "local-zfs"},
		"dns.domain":               {"a.example", "b.example"},
		"dns.servers":              {[]any{"10.0.0.1"}, []any{"10.0.0.2"}},
		"interface":                {"ide2", "ide3"},
		"ipConfigs[].ipv4.address": {"10.9.0.2/24", "10.9.0.3/24"}, "ipConfigs[].ipv4.gateway": {"10.9.0.1", "10.9.0.254"},
		"ipConfigs[].ipv6.address": {"fd00::2/64", "fd00::3/64"}, "ipConfigs[].ipv6.gateway": {"fd00::1", "fd00::fe"},
		"userAccount.keys":     {[]any{keyOfOps}, []any{keyOfOps + "-2"}},
		"userAccount.password": {"first-password", "second-password"}, "userAccount.username": {"a", "b"},
	} {
		with := object{"initialization": object{"datastoreId": "local-lvm", "interface": "ide2"}}

		switch name {
		case "ipConfigs[].ipv4.gateway":
			with = changed(with, "initialization.ipConfigs[].ipv4.address", "10.9.0.2/24")
		case "ipConfigs[].ipv6.gateway":
			with = changed(with, "initialization.ipConfigs[].ipv6.address", "fd00::2/64")
		}

		out["initialization."+name] = update{from: values[0], to: values[1], with: with}
	}

	// Proxmox shows the password as asterisks, so that no difference is visible.
	const password = "initialization.userAccount.password"

	hidden := out[password]
	hidden.want = proxmoxve.Ignored
	out[password] = hidden

	return out
}
