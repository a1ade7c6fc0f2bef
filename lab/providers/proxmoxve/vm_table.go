package proxmoxve

import "maps"

// virtualMachineTable has the VM's properties that the program uses: type, default and effect of a change. Source:
// bpg/proxmox 0.69.1 behind proxmoxve 6.18.1.
func virtualMachineTable() attributes {
	out := attributes{}
	for _, part := range []attributes{vmIdentity(), vmHardware(), vmDevices(), vmTimeouts()} {
		maps.Copy(out, part)
	}

	return out
}

// vmIdentity has what identifies and places a machine; started, reboot and stopOnDestroy are actions, not
// configuration.
func vmIdentity() attributes {
	return attributes{
		"description":   {key: "description", fallback: "", effect: InPlace},
		"migrate":       {kind: boolean, fallback: false, effect: InPlace},
		"name":          {key: "name", effect: InPlace},
		"nodeName":      {required: true, effect: Replace, validate: notEmpty},
		"onBoot":        {key: "onboot", kind: boolean, fallback: true, effect: InPlace, noRead: true},
		"poolId":        {fallback: "", effect: InPlace},
		"protection":    {key: "protection", absent: "0", kind: boolean, fallback: false, effect: InPlace},
		"reboot":        {kind: boolean, fallback: false, effect: InPlace},
		"started":       {kind: boolean, fallback: true, effect: InPlace},
		"stopOnDestroy": {kind: boolean, fallback: false, effect: InPlace},
		"tags":          {key: "tags", many: true, set: true, effect: InPlace},
		"template":      {key: "template", absent: "0", kind: boolean, fallback: false, effect: Replace},
		"vmId":          {kind: integer, computed: true, effect: Replace, validate: vmID},
		"clone": {kind: block, fields: attributes{
			"datastoreId": {fallback: "", effect: Replace},
			"full":        {kind: boolean, fallback: true, effect: Replace},
			"nodeName":    {fallback: "", effect: Replace},
			"retries":     {kind: integer, fallback: 1.0, effect: Replace},
			"vmId":        {kind: integer, required: true, effect: Replace, validate: vmID},
		}},
		"startup": {kind: block, key: "startup", bare: "order", effect: InPlace, fields: attributes{
			"downDelay": {key: "down", absent: "-1", kind: integer, fallback: -1.0, exact: true},
			"order":     {key: "order", absent: "-1", kind: integer, fallback: -1.0, exact: true},
			"upDelay":   {key: "up", absent: "-1", kind: integer, fallback: -1.0, exact: true},
		}},
		"ipv4Addresses":         {kind: texts, many: true, output: true},
		"ipv6Addresses":         {kind: texts, many: true, output: true},
		"networkInterfaceNames": {many: true, output: true},
		"macAddresses":          {many: true, computed: true, effect: InPlace},
	}
}

// vmHardware has what the guest sees after its next start.
func vmHardware() attributes {
	agent := attributes{
		"enabled": {key: "enabled", kind: boolean, fallback: false},
		"timeout": {fallback: "15m", validate: duration},
		"trim":    {key: "fstrim_cloned_disks", kind: boolean, fallback: false},
		"type":    {key: "type", fallback: "virtio", validate: oneOf("isa", "virtio")},
	}
	cpu := attributes{
		"affinity":   {key: "affinity", fallback: "", alone: true, validate: cpuSet},
		"cores":      {key: "cores", absent: "1", kind: integer, fallback: 1.0, validate: between(1, 2304)},
		"hotplugged": {key: "vcpus", kind: integer, fallback: 0.0, validate: between(0, 2304)},
		"limit":      {key: "cpulimit", kind: integer, fallback: 0.0, validate: between(0, 128)},
		"numa":       {key: "numa", kind: boolean, fallback: false},
		"sockets":    {key: "sockets", absent: "1", kind: integer, fallback: 1.0, validate: between(1, 16)},
		"type":       {key: "cpu", option: "cputype", absent: "qemu64", fallback: "qemu64"},
		"units":      {key: "cpuunits", absent: "1024", kind: integer, fallback: 1024.0, validate: between(2, 262144)},
	}
	memory := attributes{
		"dedicated": {key: "memory", kind: integer, fallback: 512.0, validate: between(64, 268435456)},
		"floating":  {key: "balloon", kind: integer, fallback: 0.0, exact: true, validate: between(0, 268435456)},
		"hugepages": {key: "hugepages", fallback: "", alone: true, validate: oneOf("", "1024", "2", "any")},
		"shared":    {kind: integer, fallback: 0.0, validate: between(0, 0)}, // the program sets 0
	}
	system := attributes{"type": {key: "ostype", fallback: "other"}}
	vga := attributes{
		"memory": {key: "memory", absent: "16", kind: integer, fallback: 16.0, validate: between(4, 512)},
		"type":   {key: "type", fallback: "std"},
	}

	return attributes{
		"acpi":  {key: "acpi", absent: "1", kind: boolean, fallback: true, effect: Restart},
		"agent": {kind: block, key: "agent", bare: "enabled", fields: agent, fallback: agent.defaults(), effect: Restart},
		"bios": {
			key: "bios", absent: "seabios", fallback: "seabios", effect: Restart,
			validate: oneOf("ovmf", "seabios"),
		},
		"bootOrders":      {key: "boot", option: "order", many: true, fallback: []any{}, effect: Restart, noRead: true},
		"cpu":             {kind: block, fields: cpu, fallback: cpu.defaults(), effect: Restart},
		"keyboardLayout":  {key: "keyboard", fallback: "en-us", effect: Restart},
		"machine":         {key: "machine", fallback: "", effect: Restart, validate: machineType},
		"memory":          {kind: block, fields: memory, fallback: memory.defaults(), effect: Restart},
		"operatingSystem": {kind: block, fields: system, fallback: system.defaults(), effect: Restart},
		"scsiHardware": {
			key: "scsihw", absent: "lsi", fallback: "virtio-scsi-pci", effect: Restart,
			validate: oneOf("lsi", "lsi53c810", "virtio-scsi-pci", "virtio-scsi-single", "megasas", "pvscsi"),
		},
		"tabletDevice": {key: "tablet", absent: "1", kind: boolean, fallback: true, effect: Restart},
		"vga":          {kind: block, key: "vga", bare: "type", fields: vga, fallback: vga.defaults(), effect: Restart},
	}
}

// vmDevices has drives, network devices and ports. Unlike a disk of the program, the default disk has no speed block,
// because its default is a value of its own.
func vmDevices() attributes {
	cdrom := attributes{
		"enabled":   {kind: boolean, fallback: false},
		"fileId":    {fallback: "", validate: media},
		"interface": {fallback: "ide3", validate: oneOf("ide0", "ide1", "ide2", "ide3")},
	}
	serial := attributes{"device": {key: "device", fallback: "socket", validate: serialDevice}}
	models := []string{"e1000", "e1000e", "rtl8139", "virtio", "vmxnet3"}
	disk := diskTable()

	defaultDisk := disk.defaults()
	defaultDisk["interface"] = "scsi0"
	delete(defaultDisk, "speed")

	return attributes{
		"cdrom": {kind: block, fields: cdrom, fallback: cdrom.defaults(), effect: InPlace},
		"disks": {kind: block, many: true, fields: disk, fallback: []any{defaultDisk}, effect: InPlace},
		"efiDisk": {kind: block, fields: attributes{
			"datastoreId":     {fallback: "local-lvm", effect: Restart},
			"fileFormat":      {computed: true, effect: Replace, validate: fileFormat},
			"preEnrolledKeys": {kind: boolean, fallback: false, effect: Replace},
			"type":            {effect: Replace, fallback: "2m", validate: oneOf("2m", "4m")},
		}},
		"tpmState": {kind: block, fields: attributes{
			"datastoreId": {fallback: "local-lvm", effect: Restart},
			"version":     {effect: Replace, fallback: "v2.0", validate: oneOf("v1.2", "v2.0")},
		}},
		"hostpcis": {
			kind: block, key: "hostpci%d", maxItems: 16, keyProperty: "device", bare: "host", many: true, effect: Restart,
			fields: attributes{
				"device":  {required: true},
				"id":      {key: "host"},
				"mapping": {key: "mapping"},
				"pcie":    {key: "pcie", kind: boolean},
				"rombar":  {key: "rombar", absent: "1", kind: boolean},
				"xvga":    {key: "x-vga", kind: boolean},
			},
		},
		"usbs": {
			kind: block, key: "usb%d", maxItems: 4, bare: "host", many: true, effect: Restart,
			fields: attributes{
				"host":    {key: "host"},
				"mapping": {key: "mapping"},
				"usb3":    {key: "usb3", absent: "0", kind: boolean},
			},
		},
		"initialization": {kind: block, effect: Restart, noRead: true, sticky: true, fields: initializationTable()},
		"networkDevices": {
			kind: block, key: "net%d", maxItems: 32, models: models, placeholder: object{"enabled": false}, many: true,
			effect: Restart,
			fields: attributes{
				"bridge":       {key: "bridge", fallback: "vmbr0"},
				"disconnected": {key: "link_down", kind: boolean, trueOnly: true},
				"enabled":      {kind: boolean, fallback: true},
				"firewall":     {key: "firewall", kind: boolean, fallback: false},
				"macAddress":   {key: "macaddr", computed: true, validate: macAddress},
				"model":        {key: "model", fallback: "virtio", validate: oneOf(models...)},
				"mtu":          {key: "mtu", kind: integer, fallback: 0.0},
				"queues":       {key: "queues", kind: integer, fallback: 0.0},
				"vlanId":       {key: "tag", kind: integer, fallback: 0.0},
			},
		},
		"serialDevices": {
			kind: block, key: "serial%d", maxItems: 4, bare: "device", placeholder: object{"device": ""}, many: true,
			fields: serial, fallback: []any{serial.defaults()}, effect: Restart,
		},
	}
}

// diskTable has the properties of a disk: it grows in place, and only a change of asynchronous I/O needs a restart.
func diskTable() attributes {
	speed := attributes{} // the program sets no limits, but states of earlier versions have all

	for _, access := range []string{"iopsRead", "iopsWrite", "read", "write"} {
		for _, limit := range []string{access, access + "Burstable"} {
			speed[limit] = attribute{kind: integer, fallback: 0.0}
		}
	}

	return attributes{
		"aio": {
			key: "aio", absent: "io_uring", fallback: "io_uring", effect: Restart,
			validate: oneOf("io_uring", "native", "threads"),
		},
		"backup": {key: "backup", absent: "1", kind: boolean, fallback: true},
		"cache": {
			key: "cache", absent: "none", fallback: "none",
			validate: oneOf("none", "writethrough", "writeback", "unsafe", "directsync"),
		},
		"datastoreId":     {fallback: "local-lvm", effect: Restart},
		"discard":         {key: "discard", absent: "ignore", fallback: "ignore"},
		"fileFormat":      {computed: true, validate: fileFormat},
		"interface":       {required: true, effect: Refused, validate: diskInterface},
		"iothread":        {key: "iothread", kind: boolean, fallback: false},
		"pathInDatastore": {computed: true},
		"replicate":       {key: "replicate", absent: "1", kind: boolean, fallback: true},
		"size":            {kind: integer, fallback: 8.0, validate: between(1, 1<<20)},
		"speed":           {kind: block, fields: speed, fallback: speed.defaults()},
		"ssd":             {key: "ssd", kind: boolean, fallback: false},
	}
}

// initializationTable has the properties of cloud-init: its content changes with a restart, its format only with a
// new machine.
func initializationTable() attributes {
	return attributes{
		"datastoreId": {fallback: "local-lvm"},
		"dns": {kind: block, fields: attributes{
			"domain": {key: "searchdomain", fallback: ""}, "servers": {key: "nameserver", many: true, separator: " "},
		}},
		"interface": {fallback: "", validate: cloudInitInterface},
		"ipConfigs": {kind: block, key: "ipconfig%d", maxItems: 32, placeholder: object{}, many: true, fields: attributes{
			"ipv4": {kind: block, fields: attributes{
				"address": {key: "ip", fallback: ""}, "gateway": {key: "gw", fallback: ""},
			}},
			"ipv6": {kind: block, fields: attributes{
				"address": {key: "ip6", fallback: ""}, "gateway": {key: "gw6", fallback: ""},
			}},
		}},
		"userAccount": {kind: block, effect: Replace, fields: attributes{
			"keys":     {key: "sshkeys", many: true, separator: "\n", escaped: true},
			"password": {key: "cipassword", fallback: "", secret: true},
			"username": {key: "ciuser"},
		}},
	}
}

// vmTimeouts has timeouts in seconds, which are not part of Proxmox' configuration.
func vmTimeouts() attributes {
	out := attributes{}
	for name, seconds := range map[string]float64{
		"timeoutClone":      1800,
		"timeoutCreate":     1800,
		"timeoutMigrate":    1800,
		"timeoutReboot":     1800,
		"timeoutShutdownVm": 1800,
		"timeoutStartVm":    1800,
		"timeoutStopVm":     300,
	} {
		out[name] = attribute{kind: integer, fallback: seconds, effect: InPlace}
	}

	return out
}
