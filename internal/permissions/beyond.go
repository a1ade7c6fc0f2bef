package permissions

// beyond has what the holder of a privilege can do besides what the program does with it, by privilege and path. The
// sources are the permission checks of qemu-server 9.2.6 (API2/Qemu.pm), pve-storage 9.1.7 (API2/Storage, Storage.pm),
// pve-manager 9.2.11 (API2/Cluster/Mapping, API2/Nodes.pm), pve-container 6.1.10 (API2/LXC.pm), pve-ha-manager 5.2.0
// (API2/HA) and pve-access-control 9.1.1.
var beyond = map[string]string{ //nolint:gochecknoglobals // a table
	"VM.Clone /vms":            "copy every VM with its disks, and read the copy",
	"VM.Allocate /vms":         "create and delete every VM, and unprivileged containers; grant its own privileges on them to others",
	"VM.Audit /vms":            "read the configuration of every VM, with its description and its cloud-init settings except the password",
	"VM.Config.CDROM /vms":     "boot every VM from another disc",
	"VM.Config.Cloudinit /vms": "set the users, keys and passwords of every VM that runs cloud-init",
	"VM.Config.Disk /vms": "attach the disks of every VM, on datastores where it has Datastore.Audit, to a VM of its own: read and " +
		"change them",
	"VM.Config.Network /vms": "connect every VM to the bridges of SDN.Use, and change Proxmox' firewall in front of it",
	"VM.Config.HWType /vms":  "pass through the devices of Mapping.Use",
	"VM.GuestAgent.Audit /vms": "read what the guest agents of all VMs report. On Proxmox VE 8, VM.Monitor runs commands in every VM with an " +
		"agent",
	"VM.PowerMgmt /vms": "stop and reset every VM",
	"VM.Migrate /vms":   "move every VM between hosts",
	"VM.Replicate /vms": "copy the disks of every VM between hosts, and end such copies",
	"Datastore.Allocate " + OnImages: "read, attach and delete everything on the datastore: images, disks and backups of others, if it has any. " +
		"Give images a datastore without disks and backups",
	"Datastore.AllocateSpace " + OnImages:    "fill the datastore",
	"Datastore.AllocateTemplate " + OnImages: "upload and download ISO images and container templates",
	"Datastore.AllocateSpace " + OnDisks:     "fill the datastore",
	"Datastore.Audit " + OnDisks:             "list the disks of the VMs of VM.Config.Disk",
	"Datastore.Allocate " + OnVolumes: "read, attach and delete everything on the datastore, and so every volume of the cluster. Give volumes " +
		"a datastore of their own",
	"Datastore.AllocateSpace " + OnVolumes: "fill the datastore",
	"SDN.Use /sdn/zones/localnetwork":      "connect VMs to every bridge and VLAN of the hosts, also to those of the hosts' own network",
	"Sys.AccessNetwork /nodes":             "let hosts request every URL that they reach, and read the answer as an image",
	"Mapping.Modify /mapping/pci": "map every PCI device of a host, such as the controller of its disks: with a VM that it may pass the mapping to, " +
		"its holder becomes root on the host. Proxmox has no narrower privilege: grant it for the run, then remove it",
	"Mapping.Modify " + OnMappings: "change the mapping to every PCI device of a host, and become root on it in the same way",
	"Mapping.Modify " + allUSBMappings: "map every USB device of a host, such as a disk with backups or a keyboard: with a VM that it may pass " +
		"the mapping to, its holder reads and changes them",
	"Mapping.Modify " + OnUSBMappings: "change the mapping to every USB device of a host",
	"Pool.Allocate /pool":             "create, change and delete resource pools, and grant its own privileges on their VMs",
	"User.Modify /access/groups/" + Group: "take over the accounts of clusters' software: set their passwords and make tokens " +
		"for them",
	"Realm.AllocateUser /access/realm/pve": "create users without privileges",
	"Sys.Console /":                        "stop, move and abandon every machine in Proxmox' high availability. Proxmox has no narrower privilege",
	"Sys.Audit /":                          "read the configuration, the status and the tasks of all hosts",
	"Sys.Modify /access":                   "change every role, its own as well, and so become Administrator",
	"Sys.Modify /": "create privileged containers, whose root reaches the host's, format unused disks, and change the options, the " +
		"firewall and the backup jobs of the data centre. Proxmox has no narrower privilege for `startup`",
}

// escalating are those with which the holder becomes root on hosts, or Administrator.
var escalating = []string{ //nolint:gochecknoglobals // a table
	"Mapping.Modify /mapping/pci", "Mapping.Modify " + OnMappings, "Sys.Modify /access", "Sys.Modify /",
}
