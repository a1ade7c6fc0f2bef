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

// powerTask runs an operation on a VM as a task, with its configuration lock. The task reports a missing VM.
func (d *Datacentre) powerTask(user, hostName, kind string, vmid int, run job) (string, error) {
	defer d.lockWrite()()

	return d.startTask(user, hostName, kind, strconv.Itoa(vmid), func(ctx context.Context, w *worker) error {
		unlock, err := d.lockConfig(ctx, vmid, exclusive, lockTimeout)
		if err != nil {
			return err
		}
		defer unlock()

		return run(ctx, w)
	})
}

// vmTask changes a VM in a task, with its configuration lock. It calls check before it starts the task and again in the
// task.
func (d *Datacentre) vmTask(
	user, hostName, kind string, vmid int, check func(v *vm, inTask bool) error,
	run func(ctx context.Context, w *worker, v *vm) error,
) (string, error) {
	var v *vm

	runCheck := func(inTask bool) (err error) {
		if v, err = d.lookupVM(hostName, vmid); err == nil {
			err = check(v, inTask)
		}

		return err
	}

	if err := withLock(d, func() error { return runCheck(false) }); err != nil {
		return "", err
	}

	return d.powerTask(user, hostName, kind, vmid, func(ctx context.Context, w *worker) error {
		if err := runCheck(true); err != nil {
			return err
		}

		return run(ctx, w, v)
	})
}

// Start starts a VM.
func (d *Datacentre) Start(user, hostName string, vmid int) (string, error) {
	if err := withLock(d, d.checkQuorum); err != nil {
		return "", err
	}

	if d.managed(vmid) {
		return d.request(user, hostName, "hastart", vmid, "started")
	}

	return d.powerTask(user, hostName, "qmstart", vmid, func(ctx context.Context, w *worker) error {
		return d.start(ctx, w, hostName, vmid)
	})
}

func (d *Datacentre) start(ctx context.Context, w *worker, hostName string, vmid int) error {
	v, err := d.lookupVM(hostName, vmid)
	if err != nil {
		return err
	}

	if err := d.restoreCloudInit(v); err != nil {
		return err
	}

	if _, err := d.checkStart(w, v); err != nil {
		return err
	}

	if err := d.sleep(ctx, d.options.Durations.StartVM); err != nil {
		return err
	}

	// Check again: another VM may have taken a device meanwhile.
	devices, err := d.checkStart(w, v)
	if err != nil {
		return err
	}

	hw := d.hardware(v, devices)
	d.state.NextPID++
	v.Running, v.Since, v.PID, v.Hardware, v.Started = true, time.Now(), d.state.NextPID, &hw, maps.Clone(v.Config)

	if d.bindVFIO(hostName, devices.pci) {
		if err := d.withoutLock(func() error { return d.ShowHost(hostName) }); err != nil {
			return err
		}
	}

	d.withGuest(vmid, func(g Guests) { g.PowerOn(hw) })

	return nil
}

// restoreCloudInit creates the cloud-init drive if the VM's host does not have it: each start writes it anew
// (PVE::QemuServer::Cloudinit, commit_cloudinit_disk).
func (d *Datacentre) restoreCloudInit(v *vm) error {
	for _, dr := range v.Config.drives() {
		id := dr.volume()
		if !dr.cloudInit() || id == "" || d.findVolume(v.Host, id) != nil {
			continue
		}

		store, _, err := splitVolume(id)
		if err != nil {
			return err
		}

		s, err := d.lookupStorage(v.Host, store, "images")
		if err != nil {
			return err
		}

		vol := &Volume{
			ID: id, Format: defaultFormat, Storage: s.Name, Host: s.Host, Content: "images", SizeBytes: 4 * mib, VMID: v.ID,
			Created: time.Now(),
		}
		d.state.Volumes[vol.key()] = vol
	}

	return nil
}

// checkStart makes the checks of PVE and KVM before a start, and returns the host's devices for it.
func (d *Datacentre) checkStart(w *worker, v *vm) (devices passedDevices, err error) {
	switch {
	case v.Template:
		return devices, errors.New("you can't start a vm if it's a template")
	case v.Lock != "":
		return devices, v.checkLock()
	case v.Running:
		return devices, fmt.Errorf("VM %d already running", v.ID)
	}

	h := d.host(v.Host)

	for _, n := range v.Config.nics() {
		if err := h.checkBridge(n, "bridge '%s' does not exist"); err != nil {
			return devices, err
		}
	}

	for _, dr := range v.Config.drives() {
		if id := dr.volume(); id != "" && !isIndexed(dr.key, "unused") && d.findVolume(v.Host, id) == nil {
			return devices, fmt.Errorf("volume '%s' does not exist", id)
		}
	}

	if v.Config["hugepages"] != "" && !v.Config.Bool("numa") {
		return devices, errors.New("numa needs to be enabled to use hugepages")
	}

	if err := v.Config.checkNativeIO(w); err != nil {
		return devices, err
	}

	if devices.pci, err = d.choosePCI(w, v); err != nil {
		return devices, err
	}

	if devices.usb, err = d.chooseUSB(v); err != nil {
		return devices, err
	}

	if v.Config.CPUs() > h.Cores {
		return devices, fmt.Errorf("MAX %d vcpus allowed per VM on this node", h.Cores)
	}

	if used, _ := d.usage(v.Host); used+v.Config.MemoryMiB() > h.MemoryMiB {
		w.log("kvm: cannot set up guest memory 'pc.ram': Cannot allocate memory")

		return devices, errors.New("start failed: QEMU exited with code 1")
	}

	return devices, nil
}

// checkNativeIO refuses native I/O for a disk that the host caches, which QEMU does not support.
func (c Config) checkNativeIO(w *worker) error {
	for _, dr := range c.drives() {
		if cache := dr.props["cache"]; dr.props["aio"] == "native" &&
			slices.Contains([]string{"writethrough", "writeback", "unsafe"}, cache) {
			w.log("kvm: aio=native was specified, but it requires cache.direct=on, which was not specified.")

			return errors.New("start failed: QEMU exited with code 1")
		}
	}

	return nil
}

// Stop stops a VM immediately. A stopped VM is not an error.
func (d *Datacentre) Stop(user, hostName string, vmid int) (string, error) {
	if d.managed(vmid) {
		return d.request(user, hostName, "hastop", vmid, "stopped")
	}

	return d.powerTask(user, hostName, "qmstop", vmid, func(ctx context.Context, _ *worker) error {
		return d.stop(ctx, hostName, vmid)
	})
}

// Shutdown sends the guest an ACPI shutdown. After the timeout in modelled seconds it fails or, with forceStop, stops
// the VM. A stopped VM is not an error; a VM without an operating system ignores the signal.
func (d *Datacentre) Shutdown(user, hostName string, vmid int, p Config) (string, error) {
	if d.managed(vmid) {
		return d.request(user, hostName, "hastop", vmid, "stopped")
	}

	return d.powerTask(user, hostName, "qmshutdown", vmid, func(ctx context.Context, _ *worker) error {
		return d.shutdown(ctx, hostName, vmid, p)
	})
}

func (d *Datacentre) shutdown(ctx context.Context, hostName string, vmid int, p Config) error {
	if d.ignoresShutdown(vmid) {
		if err := d.sleep(ctx, time.Duration(cmp.Or(p.Number("timeout", 0), 180))*time.Second); err != nil {
			return err
		}

		if !p.Bool("forceStop") {
			return errors.New("VM quit/powerdown failed - got timeout")
		}
	}

	return d.stop(ctx, hostName, vmid)
}

// ignoresShutdown reports whether a VM runs, unlocked, without an operating system that handles an ACPI shutdown.
func (d *Datacentre) ignoresShutdown(vmid int) bool {
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
	v, err := d.lookupVM(hostName, vmid)

	switch {
	case err != nil:
		return errNoConfiguration(hostName, vmid)
	case v.Lock != "":
		return v.checkLock()
	case !v.Running:
		return nil
	}

	if err := d.sleep(ctx, d.options.Durations.StopVM); err != nil {
		return err
	}

	d.powerOff(v)

	return nil
}

// powerOff ends the guest and marks the VM as stopped.
func (d *Datacentre) powerOff(v *vm) {
	if v.Running {
		d.withGuest(v.ID, func(g Guests) { g.PowerOff(v.ID) })
	}

	v.setStopped()
	d.manage(v.ID)
}

// GuestShutdown records that the guest powered itself off; it does not call Guests.PowerOff.
func (d *Datacentre) GuestShutdown(vmid int) {
	defer d.lockWrite()()

	if v := d.state.VMs[vmid]; v != nil {
		v.setStopped()
		d.manage(vmid)
	}
}

func (v *vm) setStopped() {
	v.Running, v.Since, v.PID, v.Hardware, v.Started = false, time.Time{}, 0, nil, nil
}

// Reboot shuts down a VM and starts it with its pending changes.
func (d *Datacentre) Reboot(user, hostName string, vmid int, p Config) (string, error) {
	return d.restart(user, hostName, "qmreboot", vmid, func(ctx context.Context, w *worker) error {
		if err := d.shutdown(ctx, hostName, vmid, p); err != nil {
			return err
		}

		return d.start(ctx, w, hostName, vmid)
	})
}

// Reset restarts a VM with the hardware of its power-on, like a reset button.
func (d *Datacentre) Reset(user, hostName string, vmid int) (string, error) {
	return d.restart(user, hostName, "qmreset", vmid, func(_ context.Context, _ *worker) error {
		v, err := d.lookupVM(hostName, vmid)
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
		return "", errNoConfiguration(hostName, vmid)
	}

	if !v.Running {
		return "", Refuse("VM %d not running", vmid)
	}

	return d.powerTask(user, hostName, kind, vmid, run)
}
