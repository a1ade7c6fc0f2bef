package spec

import (
	"regexp"
	"slices"

	"talos-proxmox/internal/ownership"
)

// AutoscaledPool is a pool of workers that a cluster autoscaler adds machines to: full clones of a VM template, which
// get their machine configuration from a Secret, and their addresses by DHCP.
type AutoscaledPool struct {
	// The pool's name, which begins the machines' names.
	Name string `pulumi:"name"`
	// How many machines the autoscaler may add.
	Max int `pulumi:"max"`
	// The name of the VM templates that it clones, the same on every host.
	Template string `pulumi:"template"`
	// What the templates contain.
	Talos Talos `pulumi:"talos"`
	// The hosts of the machines, which have the templates.
	Hosts []string `pulumi:"hosts"`
	// The lowest VMID of the machines.
	FirstVMID int `pulumi:"firstVmid"`
	// The Proxmox resource pool of the machines.
	ResourcePool string `pulumi:"resourcePool"`
	// The datastore of their disks.
	Datastore string `pulumi:"datastore"`
	// Processor cores of each.
	Cores int `pulumi:"cores"`
	// Memory of each in MiB.
	MemoryMiB int `pulumi:"memory"`
	// The disk of each in GiB.
	DiskGiB int `pulumi:"diskSize"`
	// Proxmox tags, to which the program adds one of its own. Default: none.
	Tags []string `pulumi:"tags,optional"`
	// Labels of the Kubernetes nodes. Default: none.
	Labels map[string]string `pulumi:"labels,optional"`
	// Taints of the Kubernetes nodes by key, as value:Effect or Effect. Default: none.
	Taints map[string]string `pulumi:"taints,optional"`
	// Talos strategic-merge patches, one YAML document each, after the cluster's. Default: none.
	Patches []string `pulumi:"patches,optional"`
	// Show no patch, label or taint in errors. Default: false.
	Secret bool `json:",omitempty" pulumi:"secret,optional"`
	// The keys of their encrypted volumes. Default: none, they are not encrypted.
	Encryption *Encryption `json:"-" pulumi:"encryption,optional"` // has secrets

	// User is the autoscaler's user on Proxmox, Path the path of autoscale in the configuration.
	User, Path string `json:"-"`
}

// isAutoscaled reports whether an autoscaler adds machines to a pool.
func (c Config) isAutoscaled() bool {
	return slices.ContainsFunc(c.Clusters, func(cluster ClusterConfig) bool {
		return slices.ContainsFunc(cluster.Workers, func(w WorkersConfig) bool { return w.Autoscale != nil })
	})
}

var proxmoxUserFormat = format{
	regexp.MustCompile(`^[A-Za-z0-9._-]+@[A-Za-z][A-Za-z0-9._-]+$`),
	"is not a Proxmox user; write it with its realm, as karpenter@pve",
}

// planAutoscale plans the pools that an autoscaler adds machines to, and has their templates on all their hosts.
func (p *planner) planAutoscale(path string, c ClusterConfig, pools []*pool) (list []AutoscaledPool) {
	for _, g := range pools {
		if g.autoscale == nil {
			continue
		}

		at := g.path + ".autoscale"
		p.checkFormat(at+".user", g.autoscale.User, proxmoxUserFormat)
		p.checkFormat(at+".resourcePool", g.autoscale.ResourcePool, resourcePoolFormat)
		p.checkAutoscale(path, g, c)

		class := p.machineClass(g, nil)
		hosts := p.poolHosts(g)

		for _, host := range hosts {
			p.allowClone(class, host, g.autoscale.User)
		}

		encryption := c.Encryption
		if g.Encryption != nil {
			encryption = g.Encryption
		}

		like := g.prototype

		list = append(list, AutoscaledPool{
			Name: g.name, Max: g.autoscale.Max, Template: class.Name, Talos: class.Talos,
			Hosts: hosts, FirstVMID: p.ranges[RangeAutoscaled].First, ResourcePool: g.autoscale.ResourcePool,
			Datastore: like.Datastore, Cores: like.Cores, MemoryMiB: like.MemoryMiB, DiskGiB: like.DiskGiB, Tags: like.Tags,
			Labels: like.Labels, Taints: like.Taints, Patches: like.Patches, Secret: like.Secret, Encryption: encryption,
			User: g.autoscale.User, Path: at,
		})
	}

	return list
}

// allowClone records a user that clones the template of a class on a host.
func (p *planner) allowClone(c class, host, user string) {
	t := p.templateOnHost(c, host)
	if t.Key == "" || slices.Contains(t.ClonedBy, user) {
		return
	}

	t.ClonedBy = slices.Sorted(slices.Values(append(slices.Clone(t.ClonedBy), user)))
	p.templates[[2]string{c.Key, host}] = t
}

// checkAutoscale refuses what an autoscaler cannot give its machines: they are clones of the template with another
// size, and have nothing that the program decides for each machine.
func (p *planner) checkAutoscale(path string, g *pool, c ClusterConfig) {
	at := g.path + ".autoscale"

	if c.Proxmox == nil {
		p.problems.Add(at, nil, "needs the provider ids by which the autoscaler knows its machines; set %s.proxmox with region", path)
	}

	if g.autoscale.ResourcePool != "" && g.autoscale.ResourcePool == g.ResourcePool {
		p.problems.Add(at+".resourcePool", g.ResourcePool, "is that of the pool's own machines, which the autoscaler could then "+
			"delete; choose another one")
	}

	template := p.classes[g.Template]
	if template.Key == "" {
		return
	}

	if !template.Source.HasVM() {
		p.problems.Add(at, nil, "needs a template to clone, and %s has source: iso; set source: import", template.path)
	}

	for key, isSet := range map[string]bool{
		"devices": len(g.Devices) > 0, "extraDisks": len(g.ExtraDisks) > 0, "extraNICs": len(g.ExtraNICs) > 0,
		"bonds": len(g.Bonds) > 0, "vlans": len(g.VLANs) > 0, "tpm": g.TPM, "network": g.Network != nil,
		"cpuAffinity": g.CPUAffinity != "", "hugepagesMiB": g.HugepagesMiB > 0,
	} {
		if isSet {
			p.problems.Add(g.path+"."+key, nil, "is not what the autoscaler's machines have, which are clones of the template; "+
				"remove it, or use a pool of its own for autoscale")
		}
	}

	if g.Network == nil {
		p.checkAutoscaleNetwork(path+".network", g, template)
	}

	p.checkAutoscaleRange()
}

// checkAutoscaleNetwork requires the network device of the template.
func (p *planner) checkAutoscaleNetwork(path string, g *pool, template class) {
	const keep = "and the autoscaler's machines of %s keep the template's network device"

	switch n := g.network; {
	case n.Bridge != template.Bridge:
		p.problems.Add(template.path+".bridge", template.Bridge, "is not the cluster's bridge %s, "+keep+"; set bridge: %[1]s here",
			n.Bridge, g.name)
	case n.VLAN != 0:
		p.problems.Add(path+".vlan", n.VLAN, "is set, "+keep+", which has no VLAN; use a bridge or VNet of the VLAN", g.name)
	case n.MTU != 0:
		p.problems.Add(path+".mtu", n.MTU, "is set, "+keep+", which has the bridge's MTU; set it on the bridge", g.name)
	case n.IPv6 != nil:
		p.problems.Add(path+".ipv6", nil, "is set, and the autoscaler's machines of %s get an IPv4 address only, by DHCP; remove "+
			"it, or autoscale", g.name)
	}
}

// checkAutoscaleRange keeps autoscalers off the VMIDs that have volumes and no machine.
func (p *planner) checkAutoscaleRange() {
	r, path := p.ranges[RangeAutoscaled], RangeAutoscaled.path()

	for _, vmid := range []int{CSIVMID, ownership.VolumesVMID} {
		if r.Contains(vmid) && !p.problems.Has(path) {
			p.problems.Add(path, p.config.VMIDRanges.Autoscaled, "has the VMID %d, whose volumes Proxmox would delete with a "+
				"machine; choose a range without it", vmid)
		}
	}
}
