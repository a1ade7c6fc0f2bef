package schema

import "maps"

// disk is what the property strings of all disks have.
var disk = map[string]string{
	"aio": "=native,threads,io_uring",
	"backup detect_zeroes replicate shared snapshot":                          "bool",
	"bps bps_rd bps_wr iops iops_max iops_rd iops_rd_max iops_wr iops_wr_max": "int",
	"bps_max_length bps_rd_max_length bps_wr_max_length iops_max_length":      "int 1..",
	"iops_rd_max_length iops_wr_max_length":                                   "int 1..",
	"bps_rd_length":                                                           "->bps_rd_max_length",
	"bps_wr_length":                                                           "->bps_wr_max_length",
	"iops_rd_length":                                                          "->iops_rd_max_length",
	"iops_wr_length":                                                          "->iops_wr_max_length",
	"mbps mbps_max mbps_rd mbps_rd_max mbps_wr mbps_wr_max":                   "number",
	"cache":       "=none,writethrough,writeback,unsafe,directsync",
	"discard":     "=ignore,on",
	"file":        "@pve-volume-id-or-qm-path * !",
	"format":      "=raw,qcow,qed,qcow2,vmdk,cloop",
	"import-from": "@pve-volume-id-or-absolute-path",
	"media":       "=cdrom,disk",
	"rerror":      "=ignore,report,stop",
	"serial":      "<=60 @urlencoded",
	"size":        "@disk-size",
	"volume":      "->file",
	"werror":      "=enospc,ignore,report,stop",
}

const worldWideName = "~(?:^(0x)[0-9a-fA-F]{16})"

func diskWith(more map[string]string) map[string]string {
	all := maps.Clone(disk)
	maps.Copy(all, more)

	return all
}

// properties are the property strings by the names of their formats; those in braces have none in PVE.
var properties = parseProperties(map[string]map[string]string{
	"{agent}": {
		"enabled":                            "bool * !",
		"freeze-fs fstrim_cloned_disks":      "bool",
		"freeze-fs-on-backup guest-fsfreeze": "->freeze-fs",
		"type":                               "=virtio,isa",
	},
	"{audio}": {"device": "=ich9-intel-hda,intel-hda,AC97 *", "driver": "=spice,none"},
	"{efidisk}": {
		"efitype": "=2m,4m", "file": "@pve-volume-id-or-qm-path * !", "format": "=raw,qcow,qed,qcow2,vmdk,cloop",
		"import-from":       "@pve-volume-id-or-absolute-path",
		"ms-cert":           "=2011,2023,2023w,2023k",
		"pre-enrolled-keys": "bool",
		"size":              "@disk-size",
		"volume":            "->file",
	},
	"{ide}":      diskWith(map[string]string{"model": "<=120 @urlencoded", "ssd": "bool", "wwn": worldWideName}),
	"pve-qm-ide": diskWith(map[string]string{"model": "<=120 @urlencoded", "ssd": "bool", "wwn": worldWideName}),
	"{sata}":     diskWith(map[string]string{"ssd": "bool", "wwn": worldWideName}),
	"{virtio}":   diskWith(map[string]string{"iothread ro": "bool"}),
	"{scsi}": diskWith(map[string]string{
		"iothread ro scsiblock ssd": "bool",
		"queues":                    "int 2..",
		"product":                   `~[A-Za-z0-9\-_\s]{0,16}`,
		"vendor":                    `~[A-Za-z0-9\-_\s]{0,8}`,
		"wwn":                       worldWideName,
	}),
	"{ivshmem}": {"name": `~[a-zA-Z0-9\-]+`, "size": "int 1.. *"},
	"{machine}": {
		"aw-bits": "number 32..64", "enable-s3 enable-s4": "bool", "viommu": "=intel,virtio",
		"type": `<=40 ~(pc|pc(-i440fx)?-\d+(\.\d+)+(\+pve\d+)?(\.pxe)?|q35|pc-q35-\d+(\.\d+)+(\+pve\d+)?(\.pxe)?|virt(?:-\d+(\.\d+)+)?(\+pve\d+)?) !`,
	},
	"{memory}": {"current": "int 16.. * !"},
	"{net}": {
		"model": "=e1000,e1000-82540em,e1000-82544gc,e1000-82545em,e1000e,i82551,i82557b,i82559er,ne2k_isa,ne2k_pci,pcnet,rtl8139,virtio,vmxnet3 * !",
		"e1000 e1000-82540em e1000-82544gc e1000-82545em e1000e i82551 i82557b i82559er ne2k_isa ne2k_pci pcnet rtl8139 virtio vmxnet3": "->macaddr/model",
		"bridge":             "@pve-bridge-id",
		"firewall link_down": "bool",
		"macaddr":            "@mac-addr",
		"mtu":                "int 1..65520",
		"queues":             "int 0..64",
		"rate":               "number 0..",
		"tag":                "int 1..4094", "trunks": `~(?:\d+(?:-\d+)?(?:;\d+(?:-\d+)?)*)`,
	},
	"{numa}": {
		"cpus":      `~(?:\d+(?:-\d+)?(?:;\d+(?:-\d+)?)*) *`,
		"hostnodes": `~(?:\d+(?:-\d+)?(?:;\d+(?:-\d+)?)*)`,
		"memory":    "number",
		"policy":    "=preferred,bind,interleave",
	},
	"{spice}": {"foldersharing": "bool", "videostreaming": "=off,all,filter"},
	"{tpmstate}": {
		"file":        "@pve-volume-id-or-qm-path * !",
		"format":      "=raw,qcow2,vmdk",
		"import-from": "@pve-volume-id-or-absolute-path",
		"size":        "@disk-size",
		"version":     "=v1.2,v2.0", "volume": "->file",
	},
	"{unused}": {"file": "@pve-volume-id * !", "volume": "->file"},
	"{usb}": {
		"host":    `~(?:(?:(?:(?:(0x)?([0-9A-Fa-f]{4}):(0x)?([0-9A-Fa-f]{4})))|(?:(?:(\d+)\-(\d+(\.\d+)*)))|[Ss][Pp][Ii][Cc][Ee])) !`,
		"mapping": "@pve-configid", "usb3": "bool",
	},
	"{vga}": {
		"clipboard": "=vnc", "memory": "int 4..512",
		"type": "=cirrus,qxl,qxl2,qxl3,qxl4,none,serial0,serial1,serial2,serial3,std,virtio,virtio-gl,vmware !",
	},
	"{virtiofs}": {
		"cache": "=auto,always,metadata,never", "direct-io expose-acl expose-xattr": "bool", "dirid": "@pve-configid * !",
	},
	"{pci-map}": {
		"description": "<=4096", "id": "~(?:^[0-9A-Fa-f]{4}:[0-9A-Fa-f]{4}$) *", "iommugroup": "int", "node": "@pve-node *",
		"path":         "~(?:[a-f0-9]{4,}:[a-f0-9]{2}:[a-f0-9]{2}(?:.[a-f0-9])?;)*[a-f0-9]{4,}:[a-f0-9]{2}:[a-f0-9]{2}(?:.[a-f0-9])? *",
		"subsystem-id": "~(?:^[0-9A-Fa-f]{4}:[0-9A-Fa-f]{4}$)",
	},

	// Of these the API's description has the names alone; their parts are in its type texts.
	"pve-qemu-sev-fmt": {"type": "=std,es,snp * !", "allow-smt kernel-hashes no-debug no-key-sharing": "bool"},
	"pve-qemu-tdx-fmt": {"type": "* !", "attestation": "bool", "vsock-cid vsock-port": "int"},
	"pve-qm-boot":      {"legacy": "~[acdn]{1,4} !", "order": "@pve-qm-bootdev-list"},
	"pve-qm-cicustom":  {"meta network user vendor": "@pve-volume-id"},
	"pve-qm-hostpci": {
		"host":                         `~(?:(?:[a-f0-9]{4,}:)?[a-f0-9]{2}:[a-f0-9]{2}(?:\.[a-f0-9])?;?)+ !`,
		"mapping":                      "@pve-configid",
		"driver":                       "=vfio,keep",
		"legacy-igd pcie rombar x-vga": "bool",
		"mdev":                         `~[^/\.:]+`,
		"romfile":                      "<=255 ~[^,;]+",
		"device-id sub-device-id sub-vendor-id vendor-id": "~(?:^0x[0-9A-Fa-f]{4}$)",
	},
	"pve-qm-ipconfig": {"ip": "@pve-ipv4-config", "gw": "@ipv4 +ip", "ip6": "@pve-ipv6-config", "gw6": "@ipv6 +ip6"},
	"pve-qm-rng":      {"source": "=/dev/urandom,/dev/random,/dev/hwrng * !", "max_bytes period": "int"},
	"pve-qm-smbios1": {
		"base64": "bool", "family manufacturer product serial sku version": "~[A-Za-z0-9+/]+={0,2}",
		"uuid": "~[a-fA-F0-9]{8}(?:-[a-fA-F0-9]{4}){3}-[a-fA-F0-9]{12}",
	},
	"pve-qm-watchdog": {"model": "=i6300esb,ib700 !", "action": "=reset,shutdown,poweroff,pause,debug,none"},
	"pve-vm-cpu-conf": {
		"cputype":         "!",
		"flags":           `~[+-][a-zA-Z0-9\-_.]+(;[+-][a-zA-Z0-9\-_.]+)*`,
		"guest-phys-bits": "int 32..64",
		"hidden":          "bool",
		"hv-vendor-id":    "~[a-zA-Z0-9]{1,12}", "phys-bits": "~(host|[0-9]{1,2})", "reported-model": "string",
	},
})

func parseProperties(tables map[string]map[string]string) map[string]map[string]Rule {
	all := make(map[string]map[string]Rule, len(tables))
	for name, table := range tables {
		all[name] = mustParse(table)
	}

	return all
}
