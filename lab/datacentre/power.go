package datacentre

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

// powerTask runs a power operation of a VM as a task, with its configuration lock. That there is no such VM, the task
// finds out.
func (d *Datacentre) powerTask(user, hostName, kind string, vmid int, run job) (string, error) {
	defer d.changing()()

	return d.spawn(user, hostName, kind, strconv.Itoa(vmid), func(ctx context.Context, w *worker) error {
		unlock, err := d.lockConfig(ctx, vmid, exclusive, lockTimeout)
		if err != nil {
			return err
		}
		defer unlock()

		return run(ctx, w)
	})
}

// vmTask changes a VM in a task, with its configuration lock. What speaks against it, which check says, is asked before
// there is a task and once more in it.
func (d *Datacentre) vmTask(
	user, hostName, kind string, vmid int, check func(v *vm, inTask bool) error,
	run func(ctx context.Context, w *worker, v *vm) error,
) (string, error) {
	var v *vm

	checked := func(inTask bool) (err error) {
		if v, err = d.needVM(hostName, vmid); err == nil {
			err = check(v, inTask)
		}

		return err
	}

	if err := locked(d, func() error { return checked(false) }); err != nil {
		return "", err
	}

	return d.powerTask(user, hostName, kind, vmid, func(ctx context.Context, w *worker) error {
		if err := checked(true); err != nil {
			return err
		}

		return run(ctx, w, v)
	})
}

// Start switches a VM on.
func (d *Datacentre) Start(user, hostName string, vmid int) (string, error) {
	if err := locked(d, d.needQuorum); err != nil {
		return "", err
	}

	return d.powerTask(user, hostName, "qmstart", vmid, func(ctx context.Context, w *worker) error {
		return d.start(ctx, w, hostName, vmid)
	})
}

func (d *Datacentre) start(ctx context.Context, w *worker, hostName string, vmid int) error {
	v, err := d.needVM(hostName, vmid)
	if err != nil {
		return err
	}

	if _, err := d.startable(w, v); err != nil {
		return err
	}

	if err := d.sleep(ctx, d.options.Durations.StartVM); err != nil {
		return err
	}

	// Once more: another VM may have taken a device meanwhile.
	pci, err := d.startable(w, v)
	if err != nil {
		return err
	}

	hw := d.hardware(v, pci)
	d.state.NextPID++
	v.Running, v.Since, v.PID, v.Hardware, v.Started = true, time.Now(), d.state.NextPID, &hw, maps.Clone(v.Config)

	if d.takePCI(hostName, pci) {
		if err := d.wait(func() error { return d.ShowHost(hostName) }); err != nil {
			return err
		}
	}

	d.withGuest(vmid, func(g Guests) { g.PowerOn(hw) })

	return nil
}

// startable is what PVE and KVM check before a VM runs, and the devices that it runs with.
func (d *Datacentre) startable(w *worker, v *vm) ([]PCIDevice, error) {
	switch {
	case v.Template:
		return nil, errors.New("you can't start a vm if it's a template")
	case v.Lock != "":
		return nil, v.locked()
	case v.Running:
		return nil, fmt.Errorf("VM %d already running", v.ID)
	}

	h := d.host(v.Host)

	for _, n := range v.Config.nics() {
		if err := h.connects(n, "bridge '%s' does not exist"); err != nil {
			return nil, err
		}
	}

	for _, dr := range v.Config.drives() {
		if id := dr.volume(); id != "" && !isIndexed(dr.key, "unused") && d.findVolume(v.Host, id) == nil {
			return nil, fmt.Errorf("volume '%s' does not exist", id)
		}
	}

	pci, err := d.choosePCI(w, v)
	if err != nil {
		return nil, err
	}

	if v.Config.CPUs() > h.Cores {
		return nil, fmt.Errorf("MAX %d vcpus allowed per VM on this node", h.Cores)
	}

	if used, _ := d.inUse(v.Host); used+v.Config.MemoryMiB() > h.MemoryMiB {
		w.log("kvm: cannot set up guest memory 'pc.ram': Cannot allocate memory")

		return nil, errors.New("start failed: QEMU exited with code 1")
	}

	return pci, nil
}

// Stop switches a VM off at once. It is no error if it is off.
func (d *Datacentre) Stop(user, hostName string, vmid int) (string, error) {
	return d.powerTask(user, hostName, "qmstop", vmid, func(ctx context.Context, _ *worker) error {
		return d.stop(ctx, hostName, vmid)
	})
}

// Shutdown asks the guest to power off, and after the timeout in modelled seconds fails or, with forceStop, switches
// the VM off. It is no error if it is off; a machine without a system does not hear the signal.
func (d *Datacentre) Shutdown(user, hostName string, vmid int, p Config) (string, error) {
	return d.powerTask(user, hostName, "qmshutdown", vmid, func(ctx context.Context, _ *worker) error {
		return d.shutdown(ctx, hostName, vmid, p)
	})
}

func (d *Datacentre) shutdown(ctx context.Context, hostName string, vmid int, p Config) error {
	if d.deaf(vmid) {
		if err := d.sleep(ctx, time.Duration(cmp.Or(p.Number("timeout", 0), 180))*time.Second); err != nil {
			return err
		}

		if !p.Bool("forceStop") {
			return errors.New("VM quit/powerdown failed - got timeout")
		}
	}

	return d.stop(ctx, hostName, vmid)
}

// deaf says that a VM runs (and is not locked), but with no system in it that would hear an ACPI signal.
func (d *Datacentre) deaf(vmid int) bool {
	v := d.state.VMs[vmid]
	if v == nil || !v.Running || v.Lock != "" || v.Hardware == nil {
		return false
	}

	return !slices.ContainsFunc(v.Hardware.Boot, func(disk GuestDisk) bool {
		vol := d.findVolume(v.Host, disk.Volume)
		if vol == nil {
			return false
		}

		img, err := d.image(vol)

		return err == nil && img.OS != ""
	})
}

func (d *Datacentre) stop(ctx context.Context, hostName string, vmid int) error {
	v, err := d.needVM(hostName, vmid)

	switch {
	case err != nil:
		return d.noConfiguration(hostName, vmid)
	case v.Lock != "":
		return v.locked()
	case !v.Running:
		return nil
	}

	if err := d.sleep(ctx, d.options.Durations.StopVM); err != nil {
		return err
	}

	d.powerOff(v)

	return nil
}

// powerOff takes the guest away and marks the VM as stopped.
func (d *Datacentre) powerOff(v *vm) {
	if v.Running {
		d.withGuest(v.ID, func(g Guests) { g.PowerOff(v.ID) })
	}

	v.off()
}

// GuestShutdown tells that the guest has powered itself off; Guests.PowerOff is not called.
func (d *Datacentre) GuestShutdown(vmid int) {
	defer d.changing()()

	if v := d.state.VMs[vmid]; v != nil {
		v.off()
	}
}

func (v *vm) off() {
	v.Running, v.Since, v.PID, v.Hardware, v.Started = false, time.Time{}, 0, nil, nil
}

// Reboot shuts down and starts again, with what has changed in the configuration.
func (d *Datacentre) Reboot(user, hostName string, vmid int, p Config) (string, error) {
	return d.restart(user, hostName, "qmreboot", vmid, func(ctx context.Context, w *worker) error {
		if err := d.shutdown(ctx, hostName, vmid, p); err != nil {
			return err
		}

		return d.start(ctx, w, hostName, vmid)
	})
}

// Reset is the reset button: the machine restarts on the hardware it was switched on with.
func (d *Datacentre) Reset(user, hostName string, vmid int) (string, error) {
	return d.restart(user, hostName, "qmreset", vmid, func(_ context.Context, _ *worker) error {
		v, err := d.needVM(hostName, vmid)
		if err != nil || !v.Running {
			return err
		}

		hw := *v.Hardware

		d.withGuest(vmid, func(g Guests) {
			g.PowerOff(vmid)
			g.PowerOn(hw)
		})

		return nil
	})
}

func (d *Datacentre) restart(user, hostName, kind string, vmid int, run job) (string, error) {
	v, err := d.GuestVM(hostName, vmid)
	if err != nil {
		return "", d.noConfiguration(hostName, vmid)
	}

	if !v.Running {
		return "", Refuse("VM %d not running", vmid)
	}

	return d.powerTask(user, hostName, kind, vmid, run)
}
