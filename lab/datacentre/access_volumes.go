package datacentre

import "fmt"

// mayStore says whether the subject may use what the drives of a request are made of.
func (s subject) mayStore(hostName string, drives []drive) error {
	if s.user == rootUser {
		return nil
	}

	for _, dr := range drives {
		var err error

		switch m := allocation.FindStringSubmatch(dr.file()); {
		case dr.file() == "", dr.file() == "none", m != nil && m[2] == "cloudinit":
		case dr.file() == "cdrom":
			err = s.d.authorise(s.user, "/", "Sys.Console")
		case m != nil:
			err = s.d.authorise(s.user, "/storage/"+m[1], "Datastore.AllocateSpace")
		default:
			err = s.mayRead(hostName, dr.volume())
		}

		if source := dr.props.Get("import-from"); err == nil && source != "" {
			err = s.mayImport(hostName, source)
		}

		if err != nil {
			return err
		}
	}

	return nil
}

func (s subject) mayImport(hostName, source string) error {
	if v := s.d.findVolume(hostName, source); v != nil && v.Content == "images" && v.VMID != 0 {
		return s.d.authorise(s.user, fmt.Sprintf("/vms/%d", v.VMID), "VM.Clone")
	}

	return s.mayRead(hostName, source)
}

// mayRead says whether the subject may use an existing volume. One that there is not has no owner secret.
func (s subject) mayRead(hostName, id string) error {
	v := s.d.findVolume(hostName, id)
	if v == nil {
		return nil
	}

	path := "/storage/" + v.Storage

	switch {
	case s.d.authorise(s.user, path, "Datastore.Allocate") == nil:
		return nil
	case v.Content == "iso", v.Content == "vztmpl", v.Content == "import":
		return s.d.authorise(s.user, path, "Datastore.AllocateSpace", "Datastore.Audit")
	case v.VMID != 0 && v.VMID == s.vmid:
		return nil
	case v.Content == "images" && v.VMID != 0:
		if err := s.d.authorise(s.user, path, "Datastore.Audit"); err != nil {
			return err
		}

		return s.d.authorise(s.user, fmt.Sprintf("/vms/%d", v.VMID), "VM.Config.Disk")
	default:
		return Refuse("missing privileges to access %s", id)
	}
}

// mayDrive says whether the subject may change a drive of a VM that has this value.
func (s subject) mayDrive(dr drive) error {
	switch {
	case dr.cloudInit():
		if err := s.may("VM.Config.Cloudinit"); err != nil {
			return err
		}

		return s.may("VM.Config.CDROM")
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
