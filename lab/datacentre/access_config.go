package datacentre

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"talos-proxmox/lab/schema"
)

// subject is someone at work on a VM, which may be about to go into a pool. Its methods are called with the lock held.
type subject struct {
	d    *Datacentre
	user string
	vmid int
	pool string
}

// may says whether the subject has one of the privileges on the VM, or on the pool that it goes into.
func (s subject) may(privileges ...string) error {
	if s.pool != "" && s.d.authorise(s.user, "/pool/"+s.pool, privileges...) == nil {
		return nil
	}

	return s.d.authorise(s.user, fmt.Sprintf("/vms/%d", s.vmid), privileges...)
}

// mayAt says whether the subject has one of the privileges on a path.
func (s subject) mayAt(path string, privileges ...string) error {
	return s.d.authorise(s.user, path, privileges...)
}

// mayTouch says whether the subject may set or remove the keys; what depends on a value is checked elsewhere.
func (s subject) mayTouch(keys iter.Seq[string]) error {
	for _, k := range slices.Sorted(keys) {
		privileges, ok := schema.ConfigPrivileges(k)

		var err error

		switch {
		case !ok:
			err = Refuse("only root can set '%s' config", k)
		case k == "startup": // it changes what the host does
			err = cmp.Or(s.may(privileges...), s.mayAt("/", "Sys.Modify"))
		case len(privileges) > 0:
			err = s.may(privileges...)
		}

		if err != nil {
			return err
		}
	}

	return nil
}

// mayHold says whether the subject may have the devices of a configuration: serial ports, passed-through hardware and
// network cards.
func (s subject) mayHold(c Config) error {
	for _, k := range c.numbered("serial") {
		if c[k] != "socket" {
			return Refuse("only root can set '%s' config for real devices", k)
		}

		if err := s.may("VM.Config.HWType"); err != nil {
			return err
		}
	}

	for _, k := range c.numbered("hostpci") {
		if err := cmp.Or(s.mayMap(k, c[k]), s.may("VM.Config.HWType")); err != nil {
			return err
		}

		if c.Properties(k).Has("romfile") {
			return WrongParameter(k, "only root@pam can set 'romfile' option")
		}
	}

	return s.mayConnect(c)
}

// mayMap says whether the subject may use the mapping of a passed-through device.
func (s subject) mayMap(key, value string) error {
	p := ParseProperties(key, value)

	switch {
	case p["host"] != "":
		return Refuse("only root can set '%s' config for non-mapped devices", key)
	case p["mapping"] == "":
		return Refuse("either 'host' or 'mapping' must be set.")
	default:
		return s.mayAt("/mapping/pci/"+p["mapping"], "Mapping.Use")
	}
}

// mayConnect says whether the subject may use the bridges of a configuration, with their VLANs.
func (s subject) mayConnect(c Config) error {
	for _, k := range c.numbered("net") {
		p := c.Properties(k)
		if p["bridge"] == "" {
			continue
		}

		tags := schema.SplitList(p["tag"] + ";" + p["trunks"])
		if len(tags) == 0 {
			tags = []string{""} // the bridge as a whole
		}

		for _, tag := range tags {
			path := NormalPath("/sdn/zones/localnetwork/" + p["bridge"] + "/" + tag)
			if err := s.mayAt(path, "SDN.Use"); err != nil {
				return err
			}
		}
	}

	return nil
}

// mayAllocate says whether the subject may make a VM at all, whatever it has.
func (s subject) mayAllocate(defaultStorage string, start bool) error {
	if defaultStorage != "" {
		if err := s.mayAt("/storage/"+defaultStorage, "Datastore.AllocateSpace"); err != nil {
			return err
		}
	}

	if start {
		if err := s.may("VM.PowerMgmt"); err != nil {
			return err
		}
	}

	if s.may("VM.Allocate") != nil {
		return Forbidden("")
	}

	return nil
}

// mayChange is the check of a change beside its drives: what is set or removed, and what was there.
func (s subject) mayChange(old, set Config, del []string) error {
	if s.user == rootUser {
		return nil
	}

	if err := cmp.Or(s.mayTouch(slices.Values(del)), s.mayTouch(maps.Keys(set))); err != nil {
		return err
	}

	// Whoever changes a device needs the right to the old one and to the new one.
	before := Config{}

	for _, k := range append(slices.Collect(maps.Keys(set)), del...) {
		if v, ok := old[k]; ok {
			before[k] = v
		}
	}

	for _, c := range []Config{before, set} {
		if err := s.mayHold(c); err != nil {
			return err
		}

		for _, dr := range c.drives() {
			if err := s.mayDrive(dr); err != nil {
				return err
			}
		}
	}

	return nil
}

// mayClone is the check of what a clone copies: its disks, devices and cards.
func (s subject) mayClone(source Config, target string) error {
	if s.user == rootUser {
		return nil
	}

	for _, dr := range source.drives() {
		name, _, _ := strings.Cut(dr.volume(), ":")

		switch {
		case dr.file() == "cdrom":
			if err := s.mayAt("/", "Sys.Console"); err != nil {
				return err
			}
		case !dr.cdrom() && name != "":
			if err := s.mayAt("/storage/"+cmp.Or(target, name), "Datastore.AllocateSpace"); err != nil {
				return err
			}
		}
	}

	for _, k := range source.numbered("hostpci") {
		if err := s.mayMap(k, source[k]); err != nil {
			return err
		}
	}

	return s.mayConnect(source)
}

// mayRead says whether the subject may use an existing volume. One that there is not has no owner secret.
func (s subject) mayRead(hostName, id string) error {
	v := s.d.findVolume(hostName, id)
	if v == nil {
		return nil
	}

	path := "/storage/" + v.Storage

	switch {
	case s.mayAt(path, "Datastore.Allocate") == nil:
		return nil
	case v.Content == "iso", v.Content == "vztmpl", v.Content == "import":
		return s.mayAt(path, "Datastore.AllocateSpace", "Datastore.Audit")
	case v.VMID != 0 && v.VMID == s.vmid:
		return nil
	case v.Content == "images" && v.VMID != 0:
		return cmp.Or(s.mayAt(path, "Datastore.Audit"), s.mayAt(fmt.Sprintf("/vms/%d", v.VMID), "VM.Config.Disk"))
	default:
		return Refuse("missing privileges to access %s", id)
	}
}

// mayDrive says whether the subject may change a drive of a VM that has this value.
func (s subject) mayDrive(dr drive) error {
	switch {
	case dr.cloudInit():
		return cmp.Or(s.may("VM.Config.Cloudinit"), s.may("VM.Config.CDROM"))
	case dr.cdrom():
		return s.may("VM.Config.CDROM")
	default:
		return s.may("VM.Config.Disk")
	}
}

// CheckVolume says whether a user may read a volume of a storage.
func (d *Datacentre) CheckVolume(user, hostName, id string) error {
	return locked(d, func() error { return subject{d: d, user: user}.mayRead(hostName, id) })
}
