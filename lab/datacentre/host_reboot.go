package datacentre

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"
)

// RebootHost reboots a host like `systemctl reboot` and returns at once. The host's VMs stop, and the host is offline
// for Durations.BootHost. Then it boots what its disk contains, and starts the VMs with onboot=1 in their order.
func (d *Datacentre) RebootHost(name string) error {
	if err := d.CheckHost(name); err != nil {
		return err
	}

	defer d.lockWrite()()

	s := d.hostState(name)
	if d.ctx.Err() != nil || !s.DownUntil.IsZero() {
		return nil
	}

	downtime := d.options.Clock.Real(d.options.Durations.StopHost + d.options.Durations.BootHost)
	s.DownUntil, s.Problem = time.Now().Add(downtime), ""

	d.workers.Go(func() {
		unlock := d.lockWrite()
		d.notifyPower(name)

		// Running tasks end with the host.
		for _, t := range d.state.Tasks {
			if cancel := d.taskCancels[t.UPID]; t.Host == name && cancel != nil {
				cancel()
			}
		}

		for _, v := range slices.Backward(d.vmsInStartOrder(name)) {
			d.powerOff(v)
		}

		unlock()
		d.bootAfter(name, downtime)
	})

	return nil
}

// OnHostPower registers a function that is called when a host goes offline (false) or is online again, and immediately
// if it is offline.
func (d *Datacentre) OnHostPower(name string, notify func(on bool)) {
	unlock := d.lockWrite()
	d.onPower[name] = append(d.onPower[name], notify)
	away := !d.isOnline(name)

	unlock()

	if away {
		notify(false)
	}
}

// notifyPower calls the functions registered with OnHostPower.
func (d *Datacentre) notifyPower(name string) {
	list, on := d.onPower[name], d.isOnline(name)

	_ = d.withoutLock(func() error {
		for _, f := range list {
			f(on)
		}

		return nil
	})
}

// bootAfter boots a host after a delay, unless the lab stops first. A failed boot is the host's Problem.
func (d *Datacentre) bootAfter(name string, after time.Duration) {
	if sleepReal(d.ctx, after) != nil {
		return
	}

	err := d.boot(name)

	defer d.lockWrite()()

	s := d.hostState(name)
	if err != nil {
		s.Problem = err.Error()

		return
	}

	s.DownUntil = time.Time{}

	d.notifyPower(name)

	_, _ = d.startTask(
		rootUser, name, "startall", "", func(ctx context.Context, w *worker) error { return d.startAll(ctx, w, name) },
	)
}

// defaultStartDelay is how many seconds Proxmox waits between two VMs without a startup delay.
const defaultStartDelay = 3

// startAll starts the VMs with onboot=1. It continues after a VM that fails to start.
func (d *Datacentre) startAll(ctx context.Context, w *worker, name string) error {
	for _, vm := range d.vmsInStartOrder(name) {
		if _, managed := d.haWanted(vm.ID); managed || vm.Running || vm.Template || !vm.Config.Bool("onboot") {
			continue
		}

		w.log("Starting VM %d", vm.ID)

		var t Task

		err := d.withoutLock(func() error {
			upid, err := d.Start(rootUser, name, vm.ID)
			if err == nil {
				t, err = d.WaitTask(ctx, upid)
			}

			return err
		})

		switch {
		case err != nil:
			w.log("%v", err)
		case !t.OK():
			w.log("Starting VM %d failed: %s", vm.ID, t.ExitStatus)
		}

		delay := vm.Config.Properties("startup").Number("up", defaultStartDelay)
		if err := d.sleep(ctx, time.Duration(delay)*time.Second); err != nil {
			return err
		}
	}

	return nil
}

// vmsInStartOrder returns a host's VMs in their start order.
func (d *Datacentre) vmsInStartOrder(name string) []*vm {
	list := slices.DeleteFunc(d.sortedVMs(), func(v *vm) bool { return v.Host != name })
	slices.SortStableFunc(list, func(a, b *vm) int { return cmp.Compare(a.startOrder(), b.startOrder()) })

	return list
}

// startOrder sorts VMs without an order last.
func (v *vm) startOrder() int { return v.Config.Properties("startup").Number("order", math.MaxInt) }
