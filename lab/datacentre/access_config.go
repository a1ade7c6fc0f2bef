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

// subject is the caller of an operation on a VM, which may be about to join a pool. Its methods require the lock.
type subject struct {
	d    *Datacentre
	user string
	vmid int
	pool string
}

// authorise checks for one of the privileges on the VM, or on the pool that it joins.
func (s subject) authorise(privileges ...string) error {
	if s.pool != "" && s.d.authorise(s.user, "/pool/"+s.pool, privileges...) == nil {
		return nil
	}

	return s.d.authorise(s.user, fmt.Sprintf("/vms/%d", s.vmid), privileges...)
}

// authorisePath checks for one of the privileges on a path.
func (s subject) authorisePath(path string, privileges ...string) error {
	return s.d.authorise(s.user, path, privileges...)
}

// authoriseKeys checks that the subject may set or remove the keys. Checks that depend on a value are elsewhere.
func (s subject) authoriseKeys(keys iter.Seq[string]) error {
	for _, k := range slices.Sorted(keys) {
		privileges, ok := schema.ConfigPrivileges(k)

		var err error

		switch {
		case !ok:
			err = Refuse("only root can set '%s' config", k)
		case k == "startup": // it affects the host
			err = cmp.Or(s.authorise(privileges...), s.authorisePath("/", "Sys.Modify"))
		case len(privileges) > 0:
			err = s.authorise(privileges...)
		}

		if err != nil {
			return err
		}
	}

	return nil
}

// authoriseDevices checks that the subject may use the serial ports, passed-through devices and network cards of a
// configuration.
func (s subject) authoriseDevices(c Config) error {
	for _, k := range c.numbered("serial") {
		if c[k] != "socket" {
			return Refuse("only root can set '%s' config for real devices", k)
		}

		if err := s.authorise("VM.Config.HWType"); err != nil {
			return err
		}
	}

	for _, k := range c.numbered("hostpci") {
		if err := cmp.Or(s.authoriseMapping(k, c[k]), s.authorise("VM.Config.HWType")); err != nil {
			return err
		}

		if c.Properties(k).Has("romfile") {
			return WrongParameter(k, "only root@pam can set 'romfile' option")
		}
	}

	for _, k := range c.numbered("usb") {
		if err := cmp.Or(s.authorise("VM.Config.HWType"), s.authoriseMapping(k, c[k])); err != nil {
			return err
		}
	}

	return s.authoriseBridges(c)
}

// authoriseMapping checks that the subject may use the resource mapping of a passed-through PCI or USB device.
func (s subject) authoriseMapping(key, value string) error {
	p, usb := ParseProperties(key, value), isIndexed(key, "usb")

	switch {
	case usb && strings.EqualFold(p["host"], "spice"):
		return nil
	case usb && p["host"] != "":
		return Refuse("only root can set '%s' config for real devices", key)
	case p["host"] != "":
		return Refuse("only root can set '%s' config for non-mapped devices", key)
	case p["mapping"] == "":
		return Refuse("either 'host' or 'mapping' must be set.")
	case usb:
		return s.authorisePath("/mapping/usb/"+p["mapping"], "Mapping.Use")
	default:
		return s.authorisePath("/mapping/pci/"+p["mapping"], "Mapping.Use")
	}
}

// authoriseBridges checks that the subject may use the bridges of a configuration, with their VLANs.
func (s subject) authoriseBridges(c Config) error {
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
			path := NormalizePath("/sdn/zones/localnetwork/" + p["bridge"] + "/" + tag)
			if err := s.authorisePath(path, "SDN.Use"); err != nil {
				return err
			}
		}
	}

	return nil
}

// authoriseCreate checks that the subject may create a VM, whatever its configuration.
func (s subject) authoriseCreate(defaultStorage string, start bool) error {
	if defaultStorage != "" {
		if err := s.authorisePath("/storage/"+defaultStorage, "Datastore.AllocateSpace"); err != nil {
			return err
		}
	}

	if start {
		if err := s.authorise("VM.PowerMgmt"); err != nil {
			return err
		}
	}

	if s.authorise("VM.Allocate") != nil {
		return Forbidden("")
	}

	return nil
}

// authoriseChange checks a change of a configuration against the keys set or removed and their old values.
func (s subject) authoriseChange(old, set Config, del []string) error {
	if s.user == rootUser {
		return nil
	}

	if err := cmp.Or(s.authoriseKeys(slices.Values(del)), s.authoriseKeys(maps.Keys(set))); err != nil {
		return err
	}

	// Changing a device requires the permission for both the old and the new one.
	before := Config{}

	for _, k := range append(slices.Collect(maps.Keys(set)), del...) {
		if v, ok := old[k]; ok {
			before[k] = v
		}
	}

	for _, c := range []Config{before, set} {
		if err := s.authoriseDevices(c); err != nil {
			return err
		}

		for _, dr := range c.drives() {
			if err := s.authoriseDrive(dr); err != nil {
				return err
			}
		}
	}

	return nil
}

// authoriseClone checks that the subject may copy the source's disks, devices and network cards.
func (s subject) authoriseClone(source Config, target string) error {
	if s.user == rootUser {
		return nil
	}

	for _, dr := range source.drives() {
		name, _, _ := strings.Cut(dr.volume(), ":")

		switch {
		case dr.file() == "cdrom":
			if err := s.authorisePath("/", "Sys.Console"); err != nil {
				return err
			}
		case !dr.cdrom() && name != "":
			if err := s.authorisePath("/storage/"+cmp.Or(target, name), "Datastore.AllocateSpace"); err != nil {
				return err
			}
		}
	}

	for _, k := range slices.Concat(source.numbered("hostpci"), source.numbered("usb")) {
		if err := s.authoriseMapping(k, source[k]); err != nil {
			return err
		}
	}

	return s.authoriseBridges(source)
}

// authoriseVolume checks that the subject may use a volume. A missing volume passes: others report it.
func (s subject) authoriseVolume(hostName, id string) error {
	v := s.d.findVolume(hostName, id)
	if v == nil {
		return nil
	}

	path := "/storage/" + v.Storage

	switch {
	case s.authorisePath(path, "Datastore.Allocate") == nil:
		return nil
	case v.Content == "iso", v.Content == "vztmpl", v.Content == "import":
		return s.authorisePath(path, "Datastore.AllocateSpace", "Datastore.Audit")
	case v.VMID != 0 && v.VMID == s.vmid:
		return nil
	case v.Content == "images" && v.VMID != 0:
		vmPath := fmt.Sprintf("/vms/%d", v.VMID)

		return cmp.Or(s.authorisePath(path, "Datastore.Audit"), s.authorisePath(vmPath, "VM.Config.Disk"))
	default:
		return Refuse("missing privileges to access %s", id)
	}
}

// authoriseDrive checks that the subject may set or remove a drive with this value.
func (s subject) authoriseDrive(dr drive) error {
	switch {
	case dr.cloudInit():
		return cmp.Or(s.authorise("VM.Config.Cloudinit"), s.authorise("VM.Config.CDROM"))
	case dr.cdrom():
		return s.authorise("VM.Config.CDROM")
	default:
		return s.authorise("VM.Config.Disk")
	}
}

// CheckVolume checks that a user may read a volume of a storage.
func (d *Datacentre) CheckVolume(user, hostName, id string) error {
	return withLock(d, func() error { return subject{d: d, user: user}.authoriseVolume(hostName, id) })
}
