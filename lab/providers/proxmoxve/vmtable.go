package proxmoxve

import "maps"

// virtualMachine is the table of the VM's properties: shape, default and what a change does. It follows bpg/proxmox
// 0.69.1 behind proxmoxve 6.18.1.
func virtualMachine() attributes {
	out := attributes{}
	for _, part := range []attributes{vmIdentity(), vmHardware(), vmDevices(), vmTimeouts()} {
		maps.Copy(out, part)
	}

	return out
}

// vmIdentity is what the machine is and where; started, reboot and stopOnDestroy act on it without being configuration.
func vmIdentity() attributes {
	return attributes{
		"description":   {fallback: "", effect: inPlace},
		"migrate":       {kind: boolean, fallback: false, effect: inPlace},
		"name":          {effect: inPlace},
		"nodeName":      {required: true, effect: replace, validate: notEmpty},
		"onBoot":        {kind: boolean, fallback: true, effect: inPlace},
		"poolId":        {fallback: "", effect: inPlace},
		"protection":    {kind: boolean, fallback: false, effect: inPlace},
		"reboot":        {kind: boolean, fallback: false, effect: inPlace},
		"started":       {kind: boolean, fallback: true, effect: inPlace},
		"stopOnDestroy": {kind: boolean, fallback: false, effect: inPlace},
		"tags":          {many: true, effect: inPlace},
		"template":      {kind: boolean, fallback: false, effect: replace},
		"vmId":          {kind: integer, computed: true, effect: replace, validate: vmID},
		"clone": {kind: block, fields: attributes{
			"datastoreId": {fallback: "", effect: replace},
			"full":        {kind: boolean, fallback: true, effect: replace},
			"nodeName":    {fallback: "", effect: replace},
			"retries":     {kind: integer, fallback: 1.0, effect: replace},
			"vmId":        {kind: integer, required: true, effect: replace, validate: vmID},
		}},
		"smbios": {kind: block, effect: inPlace, fields: attributes{
			"family":       {fallback: ""},
			"manufacturer": {fallback: ""},
			"product":      {fallback: ""},
			"serial":       {fallback: ""},
			"sku":          {fallback: ""},
			"uuid":         {computed: true}, "version": {fallback: ""},
		}},
		"startup": {kind: block, effect: inPlace, fields: attributes{
			"downDelay": {kind: integer, fallback: -1.0},
			"order":     {kind: integer, fallback: -1.0},
			"upDelay":   {kind: integer, fallback: -1.0},
		}},
		"hookScriptFileId":      {fallback: "", effect: inPlace},
		"ipv4Addresses":         {kind: texts, many: true, output: true},
		"ipv6Addresses":         {kind: texts, many: true, output: true},
		"networkInterfaceNames": {many: true, output: true},
		"macAddresses":          {many: true, computed: true, effect: inPlace},
	}
}

// vmHardware is what the guest sees on its next start.
func vmHardware() attributes {
	agent := attributes{
		"enabled": {kind: boolean, fallback: false},
		"timeout": {fallback: "15m", validate: duration},
		"trim":    {kind: boolean, fallback: false},
		"type":    {fallback: "virtio", validate: oneOf("isa", "virtio")},
	}
	cpu := attributes{
		"affinity":     {fallback: ""},
		"architecture": {unsupported: true},
		"cores":        {kind: integer, fallback: 1.0, validate: between(1, 2304)},
		"flags":        {many: true, fallback: []any{}},
		"hotplugged":   {kind: integer, fallback: 0.0, validate: between(0, 2304)},
		"limit":        {kind: integer, fallback: 0.0, validate: between(0, 128)},
		"numa":         {kind: boolean, fallback: false},
		"sockets":      {kind: integer, fallback: 1.0, validate: between(1, 16)},
		"type":         {fallback: "qemu64"},
		"units":        {kind: integer, fallback: 1024.0, validate: between(2, 262144)},
	}
	memory := attributes{
		"dedicated":     {kind: integer, fallback: 512.0, validate: between(64, 268435456)},
		"floating":      {kind: integer, fallback: 0.0, validate: between(0, 268435456)},
		"hugepages":     {fallback: "", validate: oneOf("", "1024", "2", "any"), with: "cpu.numa"},
		"keepHugepages": {kind: boolean, fallback: false, with: "cpu.numa"},
		"shared":        {kind: integer, fallback: 0.0, validate: between(0, 268435456)},
	}
	system := attributes{"type": {fallback: "other"}}
	vga := attributes{
		"clipboard": {fallback: "", validate: oneOf("", "vnc")},
		"memory":    {kind: integer, fallback: 16.0, validate: between(4, 512)},
		"type":      {fallback: "std"},
	}
	watchdog := attributes{
		"action":  {fallback: "none", validate: oneOf("debug", "none", "pause", "poweroff", "reset", "shutdown")},
		"enabled": {kind: boolean, fallback: false},
		"model":   {fallback: "i6300esb", validate: oneOf("i6300esb", "ib700")},
	}

	return attributes{
		"acpi":            {kind: boolean, fallback: true, effect: reboot},
		"agent":           {kind: block, fields: agent, fallback: agent.defaults(), effect: reboot},
		"bios":            {fallback: "seabios", effect: reboot, validate: oneOf("ovmf", "seabios")},
		"bootOrders":      {many: true, fallback: []any{}, effect: reboot},
		"cpu":             {kind: block, fields: cpu, fallback: cpu.defaults(), effect: reboot},
		"keyboardLayout":  {fallback: "en-us", effect: reboot},
		"kvmArguments":    {fallback: "", effect: reboot},
		"machine":         {fallback: "", effect: reboot, validate: machineType},
		"memory":          {kind: block, fields: memory, fallback: memory.defaults(), effect: reboot},
		"operatingSystem": {kind: block, fields: system, fallback: system.defaults(), effect: reboot},
		"scsiHardware": {
			fallback: "virtio-scsi-pci", effect: reboot,
			validate: oneOf("lsi", "lsi53c810", "virtio-scsi-pci", "virtio-scsi-single", "megasas", "pvscsi"),
		},
		"tabletDevice": {kind: boolean, fallback: true, effect: reboot},
		"vga":          {kind: block, fields: vga, fallback: vga.defaults(), effect: reboot},
		"watchdog":     {kind: block, fields: watchdog, fallback: watchdog.defaults(), effect: reboot},
	}
}

// vmDevices are drives, cards and ports. The default disk has no speed block, unlike a stated disk, because its default
// is its own value.
func vmDevices() attributes {
	cdrom := attributes{
		"enabled":   {kind: boolean, fallback: false},
		"fileId":    {fallback: "", validate: media},
		"interface": {fallback: "ide3", validate: oneOf("ide0", "ide1", "ide2", "ide3")},
	}
	serial := attributes{"device": {fallback: "socket", validate: serialDevice}}
	disk := diskTable()

	defaultDisk := disk.defaults()
	defaultDisk["interface"] = "scsi0"
	delete(defaultDisk, "speed")

	return attributes{
		"cdrom": {kind: block, fields: cdrom, fallback: cdrom.defaults(), effect: inPlace},
		"disks": {kind: block, many: true, fields: disk, fallback: []any{defaultDisk}, effect: inPlace},
		"efiDisk": {kind: block, fields: attributes{
			"datastoreId":     {fallback: "local-lvm", effect: reboot},
			"fileFormat":      {computed: true, effect: replace, validate: fileFormat},
			"preEnrolledKeys": {kind: boolean, fallback: false, effect: replace},
			"type":            {effect: replace, fallback: "2m", validate: oneOf("2m", "4m")},
		}},
		"tpmState": {kind: block, fields: attributes{
			"datastoreId": {fallback: "local-lvm", effect: reboot},
			"version":     {effect: replace, fallback: "v2.0", validate: oneOf("v1.2", "v2.0")},
		}},
		"hostpcis": {kind: block, many: true, effect: reboot, fields: attributes{
			"device":  {required: true},
			"id":      {},
			"mapping": {},
			"mdev":    {},
			"pcie":    {kind: boolean},
			"romFile": {},
			"rombar":  {kind: boolean},
			"xvga":    {kind: boolean},
		}},
		"initialization": {kind: block, effect: reboot, fields: initializationTable()},
		"networkDevices": {kind: block, many: true, effect: reboot, fields: attributes{
			"bridge":       {fallback: "vmbr0"},
			"disconnected": {kind: boolean},
			"enabled":      {kind: boolean, fallback: true},
			"firewall":     {kind: boolean, fallback: false},
			"macAddress":   {computed: true, validate: macAddress},
			"model":        {fallback: "virtio", validate: oneOf("e1000", "e1000e", "rtl8139", "virtio", "vmxnet3")},
			"mtu":          {kind: integer, fallback: 0.0},
			"queues":       {kind: integer, fallback: 0.0, validate: between(0, 64)},
			"rateLimit":    {kind: number, fallback: 0.0},
			"trunks":       {},
			"vlanId":       {kind: integer, fallback: 0.0},
		}},
		"numas": {kind: block, many: true, effect: reboot, fields: attributes{
			"cpus":      {required: true, with: "cpu.numa"},
			"device":    {required: true, validate: numaDevice, with: "cpu.numa"},
			"hostnodes": {with: "cpu.numa"},
			"memory":    {kind: integer, required: true, with: "cpu.numa"},
			"policy":    {fallback: "preferred", validate: oneOf("bind", "interleave", "preferred")},
		}},
		"serialDevices": {kind: block, many: true, fields: serial, fallback: []any{serial.defaults()}, effect: reboot},
		"audioDevice": {kind: block, unsupported: true, effect: reboot, fields: attributes{
			"device": {}, "driver": {}, "enabled": {kind: boolean},
		}},
		"usbs": {kind: block, many: true, unsupported: true, effect: reboot, fields: attributes{
			"host": {}, "mapping": {}, "usb3": {kind: boolean},
		}},
	}
}

// diskTable is one disk; a new size grows it in place, and only another way of asynchronous I/O needs a restart.
func diskTable() attributes {
	speed := attributes{}
	for _, name := range speedKeys {
		speed[name.property] = attribute{kind: integer, fallback: 0.0, effect: ignored}
	}

	return attributes{
		"aio":             {fallback: "io_uring", effect: reboot, validate: oneOf("io_uring", "native", "threads")},
		"backup":          {kind: boolean, fallback: true},
		"cache":           {fallback: "none", validate: oneOf("none", "writethrough", "writeback", "unsafe", "directsync")},
		"datastoreId":     {fallback: "local-lvm", effect: reboot},
		"discard":         {fallback: "ignore"},
		"fileFormat":      {computed: true, validate: fileFormat},
		"fileId":          {unsupported: true, effect: replace},
		"interface":       {required: true, effect: refused, validate: diskInterface},
		"iothread":        {kind: boolean, fallback: false},
		"pathInDatastore": {computed: true},
		"replicate":       {kind: boolean, fallback: true},
		"serial":          {fallback: ""},
		"size":            {kind: integer, fallback: 8.0, validate: between(1, 1<<20)},
		"speed":           {kind: block, fields: speed, fallback: speed.defaults()},
		"ssd":             {kind: boolean, fallback: false},
	}
}

// initializationTable is what cloud-init gets; the drive's contents change with a restart, its format only with a
// new machine.
func initializationTable() attributes {
	address := attributes{"address": {fallback: ""}, "gateway": {fallback: ""}}

	return attributes{
		"datastoreId": {fallback: "local-lvm"},
		"dns": {kind: block, fields: attributes{
			"domain": {fallback: ""}, "server": {}, "servers": {many: true},
		}},
		"interface": {fallback: "", validate: cloudInitInterface},
		"ipConfigs": {kind: block, many: true, fields: attributes{
			"ipv4": {kind: block, fields: address}, "ipv6": {kind: block, fields: address},
		}},
		"metaDataFileId":    {fallback: "", effect: replace},
		"networkDataFileId": {fallback: "", effect: replace},
		"type":              {fallback: "", effect: replace, validate: oneOf("", "configdrive2", "nocloud")},
		"upgrade":           {kind: boolean, unsupported: true},
		"userAccount": {kind: block, effect: replace, fields: attributes{
			"keys": {many: true}, "password": {fallback: "", secret: true}, "username": {},
		}},
		"userDataFileId":   {fallback: "", effect: replace},
		"vendorDataFileId": {fallback: "", effect: replace},
	}
}

// vmTimeouts are in seconds and never reach Proxmox as configuration.
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
		out[name] = attribute{kind: integer, fallback: seconds, effect: inPlace}
	}

	// The published provider gives the deprecated one no default through Pulumi.
	out["timeoutMoveDisk"] = attribute{kind: integer, effect: inPlace}

	return out
}
