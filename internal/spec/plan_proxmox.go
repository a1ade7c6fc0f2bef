package spec

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"talos-proxmox/internal/ownership"
)

// Proxmox is the topology of a cluster's nodes on Proxmox, and the Proxmox accounts of its software. The nodes get the
// labels topology.kubernetes.io/region and zone, and the provider id proxmox://<region>/<vmid>.
type Proxmox struct {
	// The name of the Proxmox cluster, which cannot change while nodes exist.
	Region string `pulumi:"region"`
	// The URL of the Proxmox API for software in the cluster, without a path: https://10.0.0.2:8006. Required with
	// accounts.
	Endpoint string `json:"-" pulumi:"endpoint,optional"`
	// Whether that software accepts any certificate of the API. Default: false.
	Insecure bool `json:"-" pulumi:"insecure,optional"`
	// The certificate authority of the API's certificate, as PEM text. Default: none, the authorities that the software
	// trusts by itself.
	CA string `pulumi:"ca,optional"`
	// Give accounts the roles of docs/permissions.md, which an administrator has created, instead of their own. Default:
	// false.
	ExistingRoles bool `json:",omitempty" pulumi:"existingRoles,optional"`
	// The account of the Proxmox CSI plugin. Default: none.
	CSI *Identity `pulumi:"csi,optional"`
	// The account of the Proxmox cloud controller manager. Default: none.
	CloudController *Identity `pulumi:"cloudController,optional"`
	// Storage classes for the CSI plugin, which may use their datastores. Default: none.
	StorageClasses []StorageClass `pulumi:"storageClasses,optional"`

	// RolesSet reports whether the stack file sets the source of roles; otherwise roles of the last run are kept.
	RolesSet bool `json:"-"`
}

// CSIVMID is the VMID in the names of the Proxmox CSI plugin's volumes (its default, pkg/config of v0.19.1): Proxmox
// takes them for disks of that VM, and deletes them with it.
const CSIVMID = 9999

// reserveVMIDs keeps machines and templates off the VMIDs of the volumes that outlive machines and of the CSI plugin's.
func (p *planner) reserveVMIDs() {
	p.vmids.take(ownership.VolumesVMID, claim{owner: "the volumes that outlive machines"})

	for i, c := range p.config.Clusters {
		if c.Proxmox != nil && c.Proxmox.CSI != nil {
			path := fmt.Sprintf("clusters[%d].proxmox.csi", i)
			p.vmids.take(CSIVMID, claim{owner: "the volumes of the Proxmox CSI plugin", group: path, path: path, shared: true})
		}
	}
}

// Datastores returns the datastores of a cluster's storage classes, sorted.
func (x *Proxmox) Datastores() []string {
	var names []string

	if x != nil {
		for _, class := range x.StorageClasses {
			names = append(names, class.Datastore)
		}
	}

	slices.Sort(names)

	return slices.Compact(names)
}

// WithDefaults returns a copy with the defaults; nil = no integration.
func (x *Proxmox) WithDefaults() *Proxmox {
	if x == nil {
		return nil
	}

	filled := *x
	filled.CSI, filled.CloudController = x.CSI.WithDefaults(), x.CloudController.WithDefaults()

	filled.StorageClasses = slices.Clone(x.StorageClasses)
	for i := range filled.StorageClasses {
		setDefaults(reflect.ValueOf(&filled.StorageClasses[i]).Elem())
	}

	return &filled
}

// WithDefaults returns a copy with the defaults; nil = no account.
func (i *Identity) WithDefaults() *Identity {
	if i == nil {
		return nil
	}

	filled := *i
	if len(filled.Tokens) == 0 {
		filled.Tokens = []int{1}
	}

	return &filled
}

// planProxmox plans a cluster's integration with Proxmox; nil = none.
func (p *planner) planProxmox(path, cluster string, c *ProxmoxConfig) *Proxmox {
	if c == nil {
		return nil
	}

	path += ".proxmox"
	p.checkFormat(path+".region", c.Region, regionFormat)
	p.checkCertificate(path+".ca", c.CA, "/etc/pve/pve-root-ca.pem of a host")

	x := &Proxmox{Region: c.Region, CA: c.CA, ExistingRoles: c.Roles != "make", RolesSet: c.Roles != ""}
	if c.CSI != nil {
		x.CSI = p.planIdentity(path+".csi", cluster+"-csi", c.CSI.Identity)
		x.StorageClasses = p.planStorageClasses(path+".csi.storageClasses", c.CSI.StorageClasses)
	}

	if c.CloudController != nil {
		x.CloudController = p.planIdentity(path+".cloudController", cluster+"-ccm", *c.CloudController)
	}

	return x
}

// checkCertificate accepts only certificates as PEM, which can also contain keys; what says whose belongs there.
func (p *planner) checkCertificate(path, text, what string) {
	if text == "" || p.isUndecrypted(path) {
		return
	}

	rest := []byte(strings.TrimSpace(text))
	for first := true; first || len(rest) > 0; first = false {
		var block *pem.Block

		block, rest = pem.Decode(rest)
		if block == nil || block.Type != "CERTIFICATE" {
			p.problems.Add(path, nil, "is not a certificate in PEM form; put %s there, from -----BEGIN CERTIFICATE----- on", what)

			return
		}

		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			p.problems.Add(path, nil, "has a certificate that cannot be read; put %s there, whole", what)

			return
		}
	}
}

// maxAccountLength is Proxmox' limit for a user's name, without its realm.
const maxAccountLength = 60

func (p *planner) planIdentity(path, name string, c Identity) *Identity {
	identity := (&Identity{Account: "talos-" + p.options.Stack + "-" + name, Tokens: c.Tokens}).WithDefaults()
	if len(identity.Account) > maxAccountLength {
		p.problems.Add(path, nil, "results in the account %s, longer than the %d characters that Proxmox accepts; shorten the "+
			"cluster's or the stack's name", identity.Account, maxAccountLength)
	}

	for i, number := range c.Tokens {
		at := fmt.Sprintf("%s.tokens[%d]", path, i)

		switch {
		case number < 1:
			p.problems.Add(at, number, "is not the number of a token; use 1 or higher")
		case slices.Contains(c.Tokens[:i], number):
			p.problems.Add(at, number, "is listed twice; give each token its own number")
		}
	}

	return identity
}

func (p *planner) planStorageClasses(path string, configs []StorageClass) []StorageClass {
	var classes []StorageClass

	defaultPath := ""

	for i, c := range configs {
		at := fmt.Sprintf("%s[%d]", path, i)
		p.checkFormat(at+".name", c.Name, objectFormat)
		p.checkFormat(at+".datastore", c.Datastore, datastoreFormat)

		if slices.ContainsFunc(classes, func(o StorageClass) bool { return c.Name != "" && o.Name == c.Name }) {
			p.problems.Add(at+".name", c.Name, "is the name of another storage class already; choose another one")
		}

		if c.Default && defaultPath != "" {
			p.problems.Add(at+".default", true, "is set of %s already, and only one class can be the default; set it once",
				defaultPath)
		} else if c.Default {
			defaultPath = at
		}

		c.Path = at
		classes = append(classes, c)
	}

	return classes
}

// warnOfSharedDatastores warns of storage classes whose datastore contains more than the volumes of their cluster:
// Proxmox has no privilege to delete volumes that is narrower than Datastore.Allocate on the whole datastore.
func (p *planner) warnOfSharedDatastores(plan *Plan) {
	contents := map[string][]string{} // by datastore
	addVM := func(vm VM) {
		contents[vm.Datastore] = append(contents[vm.Datastore], vm.Name)
		for _, disk := range vm.ExtraDisks {
			contents[disk.Datastore] = append(contents[disk.Datastore], vm.Name)
		}
	}

	for _, t := range plan.Templates {
		contents[t.Datastore] = append(contents[t.Datastore], t.Name)
		contents[t.ImageDatastore] = append(contents[t.ImageDatastore], "images")
	}

	for _, m := range plan.Machines {
		addVM(m.VM)
	}

	for _, cluster := range plan.Clusters {
		for _, n := range cluster.Nodes() {
			addVM(n.VM)
		}

		if cluster.Proxmox != nil {
			for _, datastore := range cluster.Proxmox.Datastores() {
				contents[datastore] = append(contents[datastore], "volumes of cluster "+cluster.Name)
			}
		}
	}

	for _, cluster := range plan.Clusters {
		if cluster.Proxmox == nil {
			continue
		}

		for _, class := range cluster.Proxmox.StorageClasses {
			others := slices.DeleteFunc(slices.Clone(contents[class.Datastore]), func(what string) bool {
				return what == "volumes of cluster "+cluster.Name
			})
			if len(others) == 0 {
				continue
			}

			slices.Sort(others)
			p.warn("%s.datastore: %s holds more than this cluster's volumes (%s), and the CSI plugin's token may delete any volume of "+
				"it: give the class a datastore of its own (docs/platform.md#volumes)", class.Path, class.Datastore,
				strings.Join(slices.Compact(others), ", "))
		}
	}
}

// isTopologyLabel reports whether a cluster with [ProxmoxConfig] itself sets a label on its nodes.
func isTopologyLabel(key string) bool {
	return key == "topology.kubernetes.io/region" || key == "topology.kubernetes.io/zone"
}
