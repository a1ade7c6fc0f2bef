package datacentre

import (
	"fmt"
	"maps"
	"slices"
	"strings"
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

// configPrivileges are the keys of a configuration by the privilege that changes them. Keys that are nowhere here are
// root's.
var configPrivileges = map[string]string{
	"VM.Config.CPU":    "cores cpu cpulimit cpuunits numa smp sockets vcpus",
	"VM.Config.Memory": "memory balloon shares allow-ksm",
	"VM.Config.HWType": "acpi hotplug kvm machine scsihw smbios1 tablet vga watchdog audio0 rng0",
	"VM.Config.Options": "agent autostart bios description keyboard localtime migrate_downtime migrate_speed name onboot ostype protection reboot startdate " +
		"startup tdf template",
	"VM.PowerMgmt":        "freeze",
	"VM.Config.Disk":      "boot bootdisk vmstatestorage",
	"VM.Config.Cloudinit": "cicustom cipassword citype ciuser ciupgrade nameserver searchdomain sshkeys",
}

var keyPrivileges = indexPrivileges()

func indexPrivileges() map[string]string {
	m := map[string]string{}

	for p, keys := range configPrivileges {
		for k := range strings.FieldsSeq(keys) {
			m[k] = p
		}
	}

	return m
}

// valued are keys whose privilege depends on their value.
func valued(key string) bool {
	return IsDrive(key) || key == "cdrom" || slices.ContainsFunc(
		[]string{"serial", "usb", "hostpci", "virtiofs"}, func(p string) bool { return isIndexed(key, p) },
	)
}

// mayTouch says whether the subject may set or remove the keys; what depends on a value is checked elsewhere.
func (s subject) mayTouch(keys []string) error {
	if s.user == rootUser {
		return nil
	}

	slices.Sort(keys)

	for _, k := range keys {
		if valued(k) || k == "tags" {
			continue
		}

		p := []string{keyPrivileges[k]}

		switch {
		case isIndexed(k, "net"):
			p = []string{"VM.Config.Network"}
		case isIndexed(k, "numa"):
			p = []string{"VM.Config.CPU"}
		case p[0] == "VM.Config.Cloudinit", isIndexed(k, "ipconfig"):
			p = []string{"VM.Config.Cloudinit", "VM.Config.Network"}
		case p[0] == "":
			return refuse("only root can set '%s' config", k)
		}

		if err := s.may(p...); err != nil {
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

	for _, k := range slices.Sorted(maps.Keys(c)) {
		var err error

		switch {
		case isIndexed(k, "serial") && c[k] != "socket":
			return refuse("only root can set '%s' config for real devices", k)
		case isIndexed(k, "serial"):
			err = s.may("VM.Config.HWType")
		case isIndexed(k, "hostpci"):
			err = s.mayPass(k, "pci", c[k], "for non-mapped devices")
		case isIndexed(k, "usb"):
			err = s.mayPass(k, "usb", c[k], "for real devices")
		case isIndexed(k, "virtiofs"):
			if err = s.may("VM.Config.Disk"); err == nil {
				err = s.d.authorise(s.user, "/mapping/dir/"+ParseProperties(c[k], "dirid").Get("dirid"), "Mapping.Use")
			}
		}

		if err != nil {
			return err
		}
	}

	return s.mayConnect(c)
}

// mayPass says whether the subject may pass a device of the host through.
func (s subject) mayPass(key, kind, value, real string) error {
	p := ParseProperties(value, "host")

	switch host := p.Get("host"); {
	case kind == "usb" && strings.EqualFold(host, "spice"):
		return s.may("VM.Config.HWType")
	case host != "":
		return refuse("only root can set '%s' config %s", key, real)
	case p.Get("mapping") == "":
		return refuse("either 'host' or 'mapping' must be set.")
	}

	if err := s.d.authorise(s.user, "/mapping/"+kind+"/"+p.Get("mapping"), "Mapping.Use"); err != nil {
		return err
	}

	if err := s.may("VM.Config.HWType"); err != nil {
		return err
	}

	if p.Get("romfile") != "" {
		return wrongParameter(key, "only root@pam can set 'romfile' option")
	}

	return nil
}

// mayConnect says whether the subject may use the bridges of a configuration, with their VLANs.
func (s subject) mayConnect(c Config) error {
	for _, k := range slices.Sorted(maps.Keys(c)) {
		if !isIndexed(k, "net") {
			continue
		}

		p := ParseProperties(c[k], "model")

		bridge := p.Get("bridge")
		if bridge == "" {
			continue
		}

		path := "/sdn/zones/localnetwork/" + bridge

		var paths []string
		if tag := p.Get("tag"); tag != "" {
			paths = append(paths, path+"/"+tag)
		}

		for trunk := range strings.SplitSeq(p.Get("trunks"), ";") {
			if trunk != "" {
				paths = append(paths, path+"/"+trunk)
			}
		}

		if len(paths) == 0 {
			paths = []string{path}
		}

		for _, path := range paths {
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

	for _, k := range slices.Sorted(maps.Keys(source)) {
		if !isIndexed(k, "hostpci") {
			continue
		}

		p := ParseProperties(source[k], "host")
		if p.Get("host") != "" {
			return refuse("only root can set '%s' config for non-mapped devices", k)
		}

		if err := s.d.authorise(s.user, "/mapping/pci/"+p.Get("mapping"), "Mapping.Use"); err != nil {
			return err
		}
	}

	return s.mayConnect(source)
}
