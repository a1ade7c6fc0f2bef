package datacentre

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// CreateVM creates a VM. Besides the configuration, c may contain PVE's request parameters pool, start and storage (the
// default for disks without one).
func (d *Datacentre) CreateVM(user, hostName string, vmid int, c Config) (string, error) {
	if _, restore := c["archive"]; restore {
		return "", WrongParameter("archive", "the lab restores no backups")
	}

	pool, start, store := c["pool"], c.Bool("start"), c["storage"]

	c, err := c.vmConfig()
	if err != nil {
		return "", err
	}

	defer d.lockWrite()()

	plans, err := d.reserveVM(subject{d: d, user: user, vmid: vmid, pool: pool}, hostName, store, start, c)
	if err != nil {
		return "", err
	}

	upid, err := d.startTask(user, hostName, "qmcreate", strconv.Itoa(vmid), func(ctx context.Context, w *worker) error {
		w.createdVM = vmid

		err := d.create(ctx, w, hostName, vmid, c, plans)
		if err != nil || !start {
			return wrapFailure(fmt.Sprintf("unable to create VM %d - ", vmid), err)
		}

		w.keepCreated()

		return d.withoutLock(func() error {
			_, err := d.Start(user, hostName, vmid)

			return err
		})
	})
	if err != nil {
		delete(d.state.VMs, vmid)
	}

	return upid, err
}

// reserveVM checks a new VM and takes its VMID. The configuration stays locked until the worker has created the VM.
func (d *Datacentre) reserveVM(s subject, hostName, store string, start bool, c Config) ([]drivePlan, error) {
	if err := cmp.Or(d.checkPool(s.pool), d.checkQuorum(), s.authoriseCreate(store, start)); err != nil {
		return nil, err
	}

	var plans []drivePlan

	for _, v := range c.drives() {
		p, err := s.planDrive(hostName, v)
		if err != nil && p.missing == nil {
			return nil, err
		}

		plans = append(plans, p)
	}

	if err := cmp.Or(s.authoriseKeys(maps.Keys(c)), s.authoriseDevices(c)); s.user != rootUser && err != nil {
		return nil, err
	}

	if old := d.state.VMs[s.vmid]; old != nil {
		return nil, Refuse("unable to create VM %d - VM %[1]d already exists on node '%s'", s.vmid, old.Host)
	}

	d.state.VMs[s.vmid] = &vm{ID: s.vmid, Host: hostName, Lock: "create", Pool: s.pool, Config: Config{}}

	return plans, nil
}

func (d *Datacentre) create(
	ctx context.Context, w *worker, hostName string, vmid int, c Config, plans []drivePlan,
) (err error) {
	unlock, err := d.lockConfig(ctx, vmid, exclusive, quickLockTimeout)
	if err != nil {
		return err
	}
	defer unlock()

	if err := d.sleep(ctx, d.options.Durations.CreateVM); err != nil {
		return err
	}

	for _, p := range plans {
		if p.missing != nil {
			return p.missing
		}

		if c[p.key], err = d.createDrive(ctx, w, hostName, vmid, p); err != nil {
			return err
		}
	}

	c.setIdentity(false)

	if c["boot"] == "" {
		c["boot"] = " " // Proxmox' value without a bootable device

		if order := c.defaultBoot(); len(order) > 0 {
			c["boot"] = "order=" + strings.Join(order, ";")
		}
	}

	c["meta"] = fmt.Sprintf("creation-qemu=10.1.2,ctime=%d", time.Now().Unix())
	v, template := d.state.VMs[vmid], c.Bool("template")
	v.Config, v.Lock = c, c["lock"]

	delete(c, "template")
	delete(c, "lock")

	if template {
		d.makeTemplate(v)
	}

	return nil
}

// makeTemplate converts a VM and its disks to a template; it requires the lock.
func (d *Datacentre) makeTemplate(v *vm) {
	v.Template = true

	for _, dr := range v.Config.drives() {
		vol := d.findVolume(v.Host, dr.volume())
		if vol == nil || dr.cdrom() || vol.VMID != v.ID || isIndexed(dr.key, "unused") {
			continue
		}

		d.deleteVolumes(vol)
		vol.ID = strings.Replace(vol.ID, "vm-"+strconv.Itoa(v.ID)+"-", "base-"+strconv.Itoa(v.ID)+"-", 1)
		d.state.Volumes[vol.key()] = vol
		v.Config[dr.key] = dr.props.With("file", vol.ID).Format(dr.key)
	}
}

// ConvertToTemplate converts a stopped VM to a template.
func (d *Datacentre) ConvertToTemplate(user, hostName string, vmid int) (string, error) {
	return d.vmTask(user, hostName, "qmtemplate", vmid, func(v *vm, _ bool) error {
		switch {
		case v.Lock != "":
			return v.checkLock()
		case v.Template:
			return Refuse("you can't convert a template to a template")
		case v.Running:
			return Refuse("you can't convert a VM to template if VM is running")
		default:
			return nil
		}
	}, func(ctx context.Context, _ *worker, v *vm) error {
		if err := d.commitConfig(ctx, hostName, vmid, d.options.Durations.ConvertTemplate); err != nil {
			return err
		}

		d.makeTemplate(v)

		return nil
	})
}

// disks returns the volumes that a VM owns; it requires the lock.
func (d *Datacentre) disks(v *vm) []*Volume {
	var list []*Volume

	for _, dr := range v.Config.drives() {
		if vol := d.findVolume(v.Host, dr.volume()); vol != nil && vol.Content == "images" && vol.VMID == v.ID &&
			!slices.Contains(list, vol) {
			list = append(list, vol)
		}
	}

	return list
}
