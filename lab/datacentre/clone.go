package datacentre

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// clonePlan is a checked clone request.
type clonePlan struct {
	request Config
	newID   int
	host    string
	source  Config
	// firewall is that of the source.
	firewall GuestFirewall
	// running is the source's state. full requests a full clone instead of a linked one.
	running, full bool
}

// CloneVM clones a VM or template. The task creates the new VM.
func (d *Datacentre) CloneVM(user, hostName string, vmid int, r Config) (string, error) {
	defer d.lockWrite()()

	planned, err := d.planClone(user, hostName, vmid, r)
	if err != nil {
		return "", err
	}

	return d.startTask(user, hostName, "qmclone", strconv.Itoa(vmid), func(ctx context.Context, w *worker) error {
		// Clones of a template or a stopped VM share its lock; only the clone of a running VM takes it exclusively.
		weight := int64(1)
		if planned.running {
			weight = exclusive
		}

		unlockSource, err := d.lockConfig(ctx, vmid, weight, quickLockTimeout)
		if err != nil {
			return err
		}
		defer unlockSource()

		unlock, err := d.lockConfig(ctx, planned.newID, exclusive, quickLockTimeout)
		if err != nil {
			return err
		}
		defer unlock()

		p, err := d.planClone(user, hostName, vmid, r)
		if err != nil {
			return err
		}

		v := &vm{
			ID: p.newID, Host: p.host, Lock: "clone", Pool: r["pool"], Config: Config{"description": " qmclone temporary file"},
			Firewall: p.firewall,
		}
		d.state.VMs[v.ID], w.createdVM = v, v.ID

		w.log("creating a clone of VM %d with ID %d", vmid, v.ID)

		return wrapFailure("clone failed: ", d.clone(ctx, w, v, hostName, vmid, p))
	})
}

// errNoConfiguration is the error of calls that look for a VM on any host.
func errNoConfiguration(hostName string, vmid int) error {
	return Refuse("unable to find configuration file for VM %d on node '%s'", vmid, hostName)
}

func (d *Datacentre) planClone(user, hostName string, vmid int, r Config) (clonePlan, error) {
	if d.state.VMs[vmid] == nil {
		return clonePlan{}, errNoConfiguration(hostName, vmid)
	}

	p := clonePlan{request: r, newID: r.Number("newid", 0), host: cmp.Or(r["target"], hostName)}

	v, err := d.lookupVM(hostName, vmid)
	if err != nil {
		return p, err
	}

	if d.host(p.host) == nil {
		return p, Refuse("no such cluster node '%s'", p.host)
	}

	p.full, p.running = !v.Template, v.Running
	if r.Has("full") {
		p.full = r.Bool("full")
	}

	p.source, p.firewall = maps.Clone(v.Config), v.Firewall.clone()
	caller := subject{d: d, user: user, vmid: p.newID, pool: r["pool"]}

	return p, cmp.Or(d.checkClone(v, p, hostName), caller.authoriseClone(v.Config, r["storage"]))
}

func (d *Datacentre) checkClone(v *vm, p clonePlan, hostName string) error {
	if err := cmp.Or(d.checkQuorum(), v.checkLock(), d.checkPool(p.request["pool"])); err != nil {
		return err
	}

	if name := p.request["snapname"]; name != "" { // no VM of the lab has one
		return Refuse("snapshot '%s' does not exist", name)
	}

	for _, option := range []string{"storage", "format"} {
		if !p.full && p.request[option] != "" {
			return Refuse("parameter '%s' not allowed for linked clones", option)
		}
	}

	if name := p.request["storage"]; name != "" {
		if _, err := d.lookupStorage(p.host, name, "images"); err != nil {
			return err
		}

		if p.host != hostName {
			return Refuse("can't clone to non-shared storage '%s'", name)
		}
	}

	if d.state.VMs[p.newID] != nil {
		return Refuse("unable to create VM %d: config file already exists", p.newID)
	}

	for _, dr := range v.Config.drives() {
		vol := d.findVolume(v.Host, dr.volume())

		switch {
		case dr.cdrom() || isIndexed(dr.key, "unused") || dr.volume() == "":
		case vol == nil:
			return Refuse("volume '%s' does not exist", dr.volume())
		case !p.full && !v.Template:
			return Refuse("Linked clone feature is not supported for '%s' (%s)", dr.volume(), dr.key)
		case p.host != hostName:
			return Refuse("can't clone VM to node '%s' (VM uses local storage)", p.host)
		}
	}

	return nil
}

// clone copies the configuration and the disks. Until the first drive is copied, the VM has no name and the description
// of Proxmox' temporary file.
func (d *Datacentre) clone(ctx context.Context, w *worker, v *vm, hostName string, vmid int, p clonePlan) (err error) {
	c, drives := p.clonedConfig(vmid)

	for _, dr := range drives {
		if c[dr.key], err = d.cloneDrive(ctx, w, hostName, dr, p); err != nil {
			return err
		}

		v.Config = maps.Clone(c)
	}

	v.Config, v.Lock = c, ""

	return nil
}

// clonedConfig returns the clone's configuration without drives, and the drives to copy. The source's description is
// kept unless the request sets one.
func (p clonePlan) clonedConfig(vmid int) (Config, []drive) {
	c, drives := p.source, p.source.drives()
	name := cmp.Or(p.request["name"], "Copy-of-VM-"+cmp.Or(c["name"], strconv.Itoa(vmid)))

	for _, dr := range drives {
		delete(c, dr.key)
	}

	c.setIdentity(true)

	c["name"] = name
	if text := p.request["description"]; text != "" {
		c["description"] = text
	}

	return c, slices.DeleteFunc(drives, func(dr drive) bool { return isIndexed(dr.key, "unused") })
}

// cloneDrive copies a drive's volume, and returns the drive's value in the clone.
func (d *Datacentre) cloneDrive(
	ctx context.Context, w *worker, hostName string, dr drive, p clonePlan,
) (string, error) {
	src := d.findVolume(hostName, dr.volume())
	if src == nil || dr.cdrom() && !dr.cloudInit() {
		return dr.String(), nil
	}

	from, err := d.lookupStorage(hostName, src.Storage, "")
	if err != nil {
		return "", err
	}

	to, err := d.lookupStorage(p.host, cmp.Or(p.request["storage"], src.Storage), "images")
	if err != nil {
		return "", err
	}

	kind := "full"

	n := diskSpec{vmid: p.newID, format: p.request["format"], size: src.SizeBytes, img: src.Image, raw: src.Raw}
	if n.format == "" && to.Name == src.Storage {
		n.format = src.Format
	}

	switch {
	case dr.cloudInit():
		n.format = cmp.Or(n.format, defaultFormat)
		n.name = to.volumeName(p.newID, fmt.Sprintf("vm-%d-cloudinit", p.newID), n.format)
	case !p.full:
		n.base, kind = src.ID, "linked"
	}

	w.log("create %s clone of drive %s (%s)", kind, dr.key, dr.volume())

	drive, err := d.createDisk(ctx, w, n, from, to, dr.props)

	return drive.Format(dr.key), err
}
