package spec

// Prep says how a host is prepared for guests. Steps that are done are not repeated, and removing a setting
// restores the host's original files.
type Prep struct {
	// Prepare the host's IOMMU for PCI passthrough: kernel command line, modules, and the binding of the host's GPUs for
	// machines to vfio-pci.
	IOMMU bool `json:"iommu,omitempty" jsonschema:"default=true"`
	// The maximum size of ZFS' cache (ARC) in GiB, with fractions; 0 = not changed. Default: a tenth of the memory, at
	// most 16 GiB. Hosts without ZFS are not changed.
	ZFSArcMaxGiB *float64 `json:"zfsArcMaxGiB,omitempty" jsonschema:"minimum=0,maximum=16384"`
	// The Proxmox package repositories: `keep` = not changed.
	Repositories string `json:"repositories,omitempty" jsonschema:"default=keep,enum=keep,enum=no-subscription,enum=enterprise"`
	// Whether the host is rebooted if a change needs it: `never` = it is only reported; `whenIdle` = when no VM runs on
	// it.
	Reboot string `json:"reboot,omitempty" jsonschema:"default=never,enum=never,enum=whenIdle"`
}

// GPUConfig is a GPU of a host.
type GPUConfig struct {
	// The name that machines request it by, and the name of its PCI mapping in Proxmox. GPUs of the same kind share it,
	// on one host or several.
	Name string `json:"name" jsonschema:"required,example=rtx4000"`
	// Its PCI address: `01:00` for all functions of the device, `01:00.0` for one. `lspci -Dnn | grep -i nvidia` on the
	// host shows it.
	PCI string `json:"pci" jsonschema:"required,example=01:00"`
	// The architecture, which determines the driver.
	Generation string `json:"generation" jsonschema:"required,example=ada,enum=maxwell,enum=pascal,enum=volta,enum=turing,enum=ampere,enum=ada,enum=hopper,enum=blackwell,because=gpus are NVIDIA's and GPUs of other vendors are listed under hosts[].devices"`
	// How machines get it: `mapping` = by a PCI mapping of Proxmox, which an API token can use; `raw` = by its address,
	// which Proxmox allows only root@pam, logged in with a password.
	Passthrough string `json:"passthrough,omitempty" jsonschema:"default=mapping,enum=mapping,enum=raw"`
}

// DeviceConfig is a PCI or USB device of a host for machines, such as a GPU of Intel or AMD, a network card or a Zigbee
// stick; `gpus` lists the GPUs of NVIDIA. It has either `pci` or `usb`.
type DeviceConfig struct {
	// The name that machines request it by, and the name of its mapping in Proxmox. Devices of the same kind share it, on
	// one host or several; of USB devices, a host has one of each name. Nodes with one have the label
	// `devices.talos-proxmox/<name>`.
	Name string `json:"name" jsonschema:"required,example=igpu"`
	// Its PCI address: `00:02.0` for one function, `02:00` for all functions of the device. `lspci -Dnn` on the host shows
	// it. A virtual function (SR-IOV), such as `00:02.1`, is a device of its own, which the host must create at its start.
	PCI string `json:"pci,omitempty" jsonschema:"example=00:02.0"`
	// How a USB device is found; it does not need `prep`.
	USB *USBConfig `json:"usb,omitempty"`
	// What a PCI device is: the Talos of its machines gets the driver of a GPU of Intel (`i915` and `xe`) or AMD
	// (`amdgpu`), and `prep` binds such a GPU to vfio-pci when the host starts. For other devices, `extensions` of the
	// template add a driver that Talos lacks, and Proxmox takes them from their driver on the host when a machine starts.
	Kind DeviceKind `json:"kind,omitempty" jsonschema:"default=other,enum=intel-gpu,enum=amd-gpu,enum=other"`
}

// USBConfig says which USB device of a host is meant.
type USBConfig struct {
	// Its vendor and product in hexadecimal, which `lsusb` on the host shows.
	ID string `json:"id" jsonschema:"required,example=10c4:ea60"`
	// The bus and port that it is plugged into, with those of hubs between: `1-4`, `1-4.2`. `ls /sys/bus/usb/devices` on
	// the host shows them. Default: the port does not matter, the host has only one device with the id.
	Port string `json:"port,omitempty" jsonschema:"example=1-4"`
}

// GPUTemplateConfig holds the settings of templates for machines with a GPU, of any vendor, which are separate images
// because they contain the driver. They are built on hosts on which a machine needs one.
type GPUTemplateConfig struct {
	// The base of their VMIDs: the template on host number n has the VMID firstVmid + n. Default: 50 more than the
	// class's.
	FirstVMID int `json:"firstVmid,omitempty" jsonschema:"minimum=0,maximum=999999999"`
	// The SHA-256 of the downloaded (still compressed) file in hexadecimal; empty = not checked.
	Checksum string `json:"checksum,omitempty"`
}

// GPUUseConfig says how machines of a pool use their GPUs.
type GPUUseConfig struct {
	// GPUs of each machine.
	GPUsPerNode int `json:"gpusPerNode,omitempty" jsonschema:"default=1,minimum=1,maximum=16"`
	// Share each GPU among this many pods by time-slicing, which does not isolate their memory; 0 = one pod.
	TimeSlicing int `json:"timeSlicing,omitempty" jsonschema:"default=0,minimum=0,maximum=128"`
	// The NVIDIA driver. Default: what the GPU's generation needs.
	Driver DriverConfig `json:"driver,omitempty"`
}

// DriverConfig selects one of NVIDIA's drivers for Talos; docs/compatibility.md lists them.
type DriverConfig struct {
	// The kernel modules: NVIDIA's open ones, or the nonfree ones. Default: what the generation needs.
	Flavour string `json:"flavour,omitempty" jsonschema:"enum=open,enum=nonfree"`
	// The branch: long-term support, or production. Default: production, if it supports the generation.
	Track string `json:"track,omitempty" jsonschema:"enum=lts,enum=production"`
}

// GPUWorkersConfig is a pool of workers with GPUs, named `<cluster>-<pool>-<n>`.
type GPUWorkersConfig struct {
	// The pool's name. It cannot change while its machines run.
	Name string `json:"name" jsonschema:"required,example=gpu"`
	// How many; 0 keeps the pool without machines.
	Count int `json:"count,omitempty" jsonschema:"default=1,minimum=0,maximum=1000"`
	// How machines without a pinned host are placed among the hosts that have the GPU: `spread` = onto the one with the
	// fewest machines of the pool; `roundRobin` = by number along the list of hosts; `explicit` = every machine needs its
	// host under `nodes`.
	Placement string `json:"placement,omitempty" jsonschema:"default=roundRobin,enum=spread,enum=roundRobin,enum=explicit"`
	// The GPUs' name, from `hosts[].gpus`.
	GPU string `json:"gpu" jsonschema:"required,example=rtx4000"`
	// Taint the nodes with `nvidia.com/gpu=present:NoSchedule`, so that only pods that tolerate it run there.
	Dedicated bool `json:"dedicated,omitempty" jsonschema:"default=true"`
	// Let `talos-proxmox repair` replace dead machines of the pool without asking: `{}` for its defaults. Default: it does
	// not.
	Repair *RepairConfig `json:"repair,omitempty"`
	GPUUseConfig
	PoolConfig
}
