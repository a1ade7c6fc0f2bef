package stacks

import (
	"maps"
	"path"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components"
	"talos-proxmox/internal/backup"
	"talos-proxmox/internal/hostfacts"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
)

func (d *deployment) imageArgs(i plannedImage) components.TalosImageArgs {
	return components.TalosImageArgs{
		Talos: i.template.Talos, Source: string(i.template.Source), Stores: i.stores, FactoryURL: d.factory.URL,
		Checksum: i.checksum, Secret: i.secret, Settled: d.settled(),
	}
}

// systemImageArgs returns the arguments for an image of another system than Talos. The file name contains the owner, as
// that of a Talos image does.
func (d *deployment) systemImageArgs(i plannedImage, owner string) components.SystemImageArgs {
	s := i.template.System
	algorithm, digest, _ := strings.Cut(s.Checksum, ":")

	return components.SystemImageArgs{
		URL: s.URL, FileName: talos.ImageFile(i.name+".img", owner), Checksum: digest,
		ChecksumAlgorithm: algorithm, Stores: i.stores, Settled: d.settled(),
	}
}

func (d *deployment) templateArgs(t spec.Template, h spec.Host) components.GoldenTemplateArgs {
	args := components.GoldenTemplateArgs{
		Host: t.Host, VMID: t.VMID, Name: t.Name, Source: string(t.Source), ImageDatastore: t.ImageDatastore,
		Datastore: t.Datastore, Bridge: t.Bridge, Cores: t.Cores, Memory: t.MemoryMiB, DiskSize: t.DiskGiB,
		ClonedBy: t.ClonedBy, Shell: new(d.shell(h)),
	}

	switch {
	case t.System == nil:
		args.Talos, args.Image = &t.Talos, d.images[ImageOf(t)].VolumeID(t.Host, t.ImageDatastore)
	case t.Downloaded():
		args.System, args.Image = t.System, d.systems[ImageOf(t)].VolumeID(t.Host, t.ImageDatastore)
	case t.System.Windows != nil:
		args.System, args.Image = t.System, pulumi.String(t.System.Windows.ISO)
	default:
		args.System = t.System
	}

	return args
}

func (d *deployment) prepArgs(h *hostState, rebootAfter pulumi.StringInput) components.ProxmoxHostPrepArgs {
	args := components.ProxmoxHostPrepArgs{
		Host: h.Name, Shell: d.shell(h.Host), IOMMU: &h.Prep.IOMMU, Repositories: h.Prep.Repositories, Reboot: h.Prep.Reboot,
		Clusters: h.needs.Clusters, RebootAfter: rebootAfter, Facts: unknownString(),
		ZFSArcMaxGiB: h.Prep.ZFSArcMaxGiB,
	}
	for _, gpu := range h.GPUs {
		args.GPUs = append(args.GPUs, components.HostGPU{Name: gpu.Name, PCI: gpu.PCI})
	}

	for _, device := range spec.PCIDevices(h.Devices) {
		args.Devices = append(args.Devices, components.HostDevice{
			Name: device.Name, PCI: device.PCI, Kind: string(device.Kind),
		})
	}

	args.Machines = deviceAddresses(h.needs)
	if h.answer.Facts != nil {
		args.Facts = pulumi.String(h.answer.Document)
	}

	return args
}

// deviceAddresses returns the addresses of the PCI devices of each machine that has some.
func deviceAddresses(needs hostfacts.Needs) (machines [][]string) {
	for _, n := range needs.Nodes {
		var addresses []string
		for _, device := range spec.PCIDevices(n.AllDevices()) {
			addresses = append(addresses, device.PCI)
		}

		if len(addresses) > 0 {
			machines = append(machines, addresses)
		}
	}

	return machines
}

// clusterArgs returns a cluster's arguments without those that come from other resources.
func (d *deployment) clusterArgs(c spec.Cluster) components.TalosClusterArgs {
	args := components.TalosClusterArgs{
		Name:                c.Name,
		Endpoint:            c.Endpoint,
		CertSANs:            c.CertSANs,
		Discovery:           c.Discovery,
		LogDestinations:     c.LogDestinations,
		Tailscale:           c.Tailscale,
		VIP:                 c.VIP,
		TalosVersion:        c.TalosVersion,
		Contract:            d.lastRun.contracts[c.Name],
		KubernetesVersion:   c.KubernetesVersion,
		Upgrades:            &c.Upgrade,
		DrainTimeoutSeconds: c.DrainSeconds, HealthCheck: c.HealthCheck, BootstrapEmpty: c.BootstrapEmpty,
		Maintenance: c.Maintenance,
		Backup:      d.backupArgs(c),
		Network:     c.Network, PodCIDR: c.PodCIDR, ServiceCIDR: c.ServiceCIDR, PodCIDRIPv6: c.PodCIDRIPv6,
		ServiceCIDRIPv6:                c.ServiceCIDRIPv6,
		AllowSchedulingOnControlPlanes: &c.AllowSchedulingOnControlPlanes, GPUOperator: c.GPUOperator,
		Patches: c.Patches, Secret: c.Secret, Protect: d.plan.Protect, FactoryURL: d.factory.URL,
		GitOps: d.gitopsArgs(c), Proxmox: d.proxmoxArgs(c.Proxmox), Autoscaled: c.Autoscaled,
	}
	for _, n := range c.Nodes() {
		node := nodeArgs(n)
		node.Zone = d.zones[n.Name]
		args.Nodes = append(args.Nodes, node)
	}

	args.CNI, args.Firewall, args.APIServer, args.Registries = c.CNI, c.Firewall, c.APIServer, c.Registries

	return args
}

// gitopsArgs returns what Flux reconciles a cluster from; nil = nothing.
func (d *deployment) gitopsArgs(c spec.Cluster) *components.GitOps {
	if c.GitOps == nil {
		return nil
	}

	args := *c.GitOps
	args.Facts = d.gitopsFacts(c)

	return &args
}

// gitopsFacts returns the facts for manifests in Git that only the stack knows.
func (d *deployment) gitopsFacts(c spec.Cluster) map[string]string {
	facts := map[string]string{}

	if c.Proxmox != nil {
		facts["CLUSTER_REGION"], facts["DATASTORES"] = c.Proxmox.Region, strings.Join(c.Proxmox.Datastores(), ", ")
	}

	if s3 := d.plan.Backup.S3; s3 != nil {
		name := d.plan.BackupName(c)
		maps.Copy(facts, map[string]string{
			"BACKUP_NAME": name, "BACKUP_RECIPIENT": backup.SingleRecipient(d.plan.Backup.Recipients),
			"BACKUP_ENDPOINT": s3.Endpoint, "BACKUP_REGION": s3.Region, "BACKUP_BUCKET": s3.Bucket,
			"BACKUP_FOLDER": path.Join(s3.Prefix, name),
		})
	}

	return facts
}

// backupArgs returns where a cluster's snapshots are stored; nil = there are none.
func (d *deployment) backupArgs(c spec.Cluster) *components.Backup {
	b := d.plan.Backup
	if len(b.Recipients) == 0 {
		return nil
	}

	return &components.Backup{
		Name: d.plan.BackupName(c), Directory: b.Directory, Recipients: b.Recipients, Keep: b.Keep,
	}
}

func nodeArgs(n spec.Node) components.ClusterNode {
	args := components.ClusterNode{
		Name: n.Name, Role: string(n.Role), Address: n.Address, AddressIPv6: n.AddressIPv6, Network: n.Network,
		Talos:  n.Template.Talos,
		Labels: n.Labels, Taints: n.Taints, Patches: n.Patches, Secret: n.Secret,
		TimeSlicing: n.TimeSlicing, Dedicated: n.Dedicated, Skip: n.Skip,
		Machine: vmArgs(n.VM), Bonds: n.Bonds, VLANs: n.VLANs, Encryption: n.Encryption,
	}
	args.Machine.TPM = n.TPM

	for _, gpu := range n.GPUs {
		args.GPUs = append(
			args.GPUs, components.GPU{Name: gpu.Name, Host: gpu.Host, PCI: gpu.PCI, Generation: gpu.Generation},
		)
	}

	if len(n.GPUs) > 0 {
		args.Driver = n.Template.Driver.Flavour + " " + n.Template.Driver.Track
	}

	return args
}

// vmArgs returns a machine's VM without what comes from other resources.
func vmArgs(n spec.VM) components.Machine {
	return components.Machine{
		Host: n.Host, HostPinned: n.HostPinned, VMID: n.VMID, MAC: n.MAC, Linked: n.Linked, Agent: n.Template.System != nil,
		Cores: n.Cores, Memory: n.MemoryMiB, DiskSize: n.DiskGiB, Datastore: n.Datastore, CPUType: n.CPUType,
		CPUUnits: n.CPUUnits, NUMA: n.NUMA, CPUAffinity: n.CPUAffinity, HugepagesMiB: n.HugepagesMiB, NICQueues: n.NICQueues,
		OnBoot: &n.OnBoot, HA: n.HA, StartupOrder: n.StartupOrder, Tags: n.Tags, ResourcePool: n.ResourcePool,
		ExtraDisks: n.ExtraDisks, ExtraNICs: n.ExtraNICs, Firewall: n.Firewall,
	}
}

// setDependencies sets the arguments of a cluster's nodes that come from other resources: templates, mappings, and the
// readiness of hosts. It also sets their disks, which depend on the running machines, and the schematics that upgrades
// wait for.
func (d *deployment) setDependencies(args *components.TalosClusterArgs, c spec.Cluster) {
	args.Schematics = d.clusterSchematics(c)

	for i, n := range c.Nodes() {
		machine, template := &args.Nodes[i].Machine, d.templates[templateKeyOf(n.Template)]

		machine.ExtraDisks = n.ExtraDisks
		if n.Template.Source == spec.SourceISO {
			machine.ISO = template.VolumeID
		} else {
			machine.Template = template.VMID
		}

		d.setDevices(machine, n)

		for j, gpu := range n.GPUs {
			if mapping, known := d.mappings[gpu.Name]; known && !gpu.Raw {
				args.Nodes[i].GPUs[j].Mapping = mapping
			}
		}
	}
}

// setDevices sets the devices of a machine that are no GPUs of NVIDIA, and what a machine with PCI devices waits for.
func (d *deployment) setDevices(machine *components.Machine, n spec.Node) {
	if h, known := d.hosts[n.Host]; known && h.prep != nil && len(spec.PCIDevices(n.AllDevices())) > 0 {
		machine.HostReady = h.prep.Ready
	}

	for _, device := range spec.PCIDevices(n.Devices) {
		machine.PCIDevices = append(machine.PCIDevices, components.PCIDevice{Mapping: d.mappings[device.Name]})
	}

	for _, device := range spec.USBDevices(n.Devices) {
		machine.USBDevices = append(machine.USBDevices, components.USBDevice{Mapping: d.mappings[device.Name]})
	}
}

// clusterSchematics returns the schematics of a cluster's images.
func (d *deployment) clusterSchematics(c spec.Cluster) pulumi.StringArray {
	var (
		ids  pulumi.StringArray
		seen = map[string]bool{}
	)

	for _, n := range c.Nodes() {
		if name := ImageOf(n.Template); !seen[name] {
			seen[name] = true

			ids = append(ids, d.images[name].SchematicID)
		}
	}

	return ids
}

func unknownString() pulumi.StringOutput {
	return pulumi.UnsafeUnknownOutput(nil).ApplyT(func(any) string { return "" }).(pulumi.StringOutput)
}
