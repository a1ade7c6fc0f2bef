package datacentre

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"
)

// RebootHost shuts a host down and starts it again, as `systemctl reboot` does: it returns at once. The host's VMs are
// asked to power off, then the host is gone for Durations.BootHost, then it runs with what its disk says, and its VMs
// with onboot=1 start in their order.
func (d *Datacentre) RebootHost(name string) error {
	if err := d.NeedHost(name); err != nil {
		return err
	}

	defer d.changing()()

	s := d.hostState(name)
	if d.running.Err() != nil || !s.DownUntil.IsZero() {
		return nil
	}

	away := d.options.Clock.Real(d.options.Durations.StopHost + d.options.Durations.BootHost)
	s.DownUntil, s.Problem = time.Now().Add(away), ""

	d.workers.Add(1)

	go func() {
		done := d.changing()
		d.tell(name)

		// Running workers end with the host.
		for _, t := range d.state.Tasks {
			if cancel := d.cancels[t.UPID]; t.Host == name && cancel != nil {
				cancel()
			}
		}

		for _, v := range slices.Backward(d.onHost(name)) {
			d.powerOff(v)
		}

		done()
		d.comeUp(name, away)
	}()

	return nil
}

// OnHostPower has a function called whenever a host goes away (false), down or out of reach, or is back, and at once if
// it is away.
func (d *Datacentre) OnHostPower(name string, tell func(on bool)) {
	done := d.changing()
	d.onPower[name] = append(d.onPower[name], tell)
	away := !d.online(name)

	done()

	if away {
		tell(false)
	}
}

// tell tells those who want to know whether a host is away.
func (d *Datacentre) tell(name string) {
	list, on := d.onPower[name], d.online(name)

	_ = d.wait(func() error {
		for _, f := range list {
			f(on)
		}

		return nil
	})
}

// comeUp boots a host after a time, unless the lab ends before. A host that does not boot stays away and says why.
func (d *Datacentre) comeUp(name string, after time.Duration) {
	defer d.workers.Done()

	timer := time.NewTimer(after)
	defer timer.Stop()

	select {
	case <-timer.C:
	case <-d.running.Done():
		return
	}

	err := d.boot(name)

	defer d.changing()()

	s := d.hostState(name)
	if err != nil {
		s.Problem = err.Error()

		return
	}

	s.DownUntil = time.Time{}

	d.tell(name)

	_, _ = d.spawn(
		rootUser, name, "startall", "", func(ctx context.Context, w *worker) error { return d.startAll(ctx, w, name) },
	)
}

// defaultStartDelay is how many seconds Proxmox waits between two VMs whose startup says nothing.
const defaultStartDelay = 3

// startAll starts the VMs with onboot=1. One that does not start is no reason to leave the others off.
func (d *Datacentre) startAll(ctx context.Context, w *worker, name string) error {
	for _, vm := range d.onHost(name) {
		if vm.Running || vm.Template || !vm.Config.Bool("onboot") {
			continue
		}

		w.log("Starting VM %d", vm.ID)

		var t Task

		err := d.wait(func() error {
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

// onHost are a host's VMs in the order in which it starts them.
func (d *Datacentre) onHost(name string) []*vm {
	list := slices.DeleteFunc(d.sortedVMs(), func(v *vm) bool { return v.Host != name })
	slices.SortStableFunc(list, func(a, b *vm) int { return cmp.Compare(a.startOrder(), b.startOrder()) })

	return list
}

// startOrder has VMs without an order at the end.
func (v *vm) startOrder() int { return v.Config.Properties("startup").Number("order", math.MaxInt) }
