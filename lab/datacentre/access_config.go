package datacentre

import (
	"fmt"
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

// mayTouch says whether the subject may set or remove the keys; what depends on a value is checked elsewhere.
func (s subject) mayTouch(keys []string) error {
	if s.user == rootUser {
		return nil
	}

	slices.Sort(keys)

	for _, k := range keys {
		privileges, ok := schema.ConfigPrivileges(k)

		switch {
		case !ok:
			return Refuse("only root can set '%s' config", k)
		case len(privileges) == 0:
			continue
		}

		if err := s.may(privileges...); err != nil {
			return err
		}

		if k == "startup" { // it changes what the host does
			if err := s.d.authorise(s.user, "/", "Sys.Modify"); err != nil {
				return err
			}
		}
	}

	return nil
}

// mayHold says whether the subject may have the devices of a configuration: serial ports, passed-through hardware and
// network cards.
func (s subject) mayHold(c Config) error {
	if s.user == rootUser {
		return nil
	}

	for _, k := range c.numbered("serial") {
		if c[k] != "socket" {
			return Refuse("only root can set '%s' config for real devices", k)
		}

		if err := s.may("VM.Config.HWType"); err != nil {
			return err
		}
	}

	for _, k := range c.numbered("hostpci") {
		if err := s.mayMap(k, c[k]); err != nil {
			return err
		}

		if err := s.may("VM.Config.HWType"); err != nil {
			return err
		}

		if ParseProperties(c[k], "host").Get("romfile") != "" {
			return WrongParameter(k, "only root@pam can set 'romfile' option")
		}
	}

	return s.mayConnect(c)
}

// mayMap says whether the subject may use the mapping of a passed-through device.
func (s subject) mayMap(key, value string) error {
	p := ParseProperties(value, "host")

	switch {
	case p.Get("host") != "":
		return Refuse("only root can set '%s' config for non-mapped devices", key)
	case p.Get("mapping") == "":
		return Refuse("either 'host' or 'mapping' must be set.")
	default:
		return s.d.authorise(s.user, "/mapping/pci/"+p.Get("mapping"), "Mapping.Use")
	}
}

// mayConnect says whether the subject may use the bridges of a configuration, with their VLANs.
func (s subject) mayConnect(c Config) error {
	for _, k := range c.numbered("net") {
		p := ParseProperties(c[k], "model")
		if p.Get("bridge") == "" {
			continue
		}

		tags := schema.SplitList(p.Get("tag") + ";" + p.Get("trunks"))
		if len(tags) == 0 {
			tags = []string{""} // the bridge as a whole
		}

		for _, tag := range tags {
			path := NormalPath("/sdn/zones/localnetwork/" + p.Get("bridge") + "/" + tag)
			if err := s.d.authorise(s.user, path, "SDN.Use"); err != nil {
				return err
			}
		}
	}

	return nil
}

// mayCreate is the whole check of a new VM.
func (s subject) mayCreate(hostName, defaultStorage string, start bool, c Config) error {
	if defaultStorage != "" {
		if err := s.d.authorise(s.user, "/storage/"+defaultStorage, "Datastore.AllocateSpace"); err != nil {
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

	if err := s.mayStore(hostName, c.drives()); err != nil {
		return err
	}

	if err := s.mayTouch(slices.Collect(maps.Keys(c))); err != nil {
		return err
	}

	return s.mayHold(c)
}

// mayChange is the whole check of a change: what is set or removed, and what was there.
func (s subject) mayChange(hostName string, old, set Config, del []string) error {
	if s.user == rootUser {
		return nil
	}

	if err := s.mayTouch(slices.Clone(del)); err != nil {
		return err
	}

	if err := s.mayTouch(slices.Collect(maps.Keys(set))); err != nil {
		return err
	}

	if err := s.mayStore(hostName, set.drives()); err != nil {
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
			if err := s.d.authorise(s.user, "/", "Sys.Console"); err != nil {
				return err
			}
		case dr.cdrom(), name == "":
		default:
			if target != "" {
				name = target
			}

			if err := s.d.authorise(s.user, "/storage/"+name, "Datastore.AllocateSpace"); err != nil {
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
