package datacentre

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
)

// RebootHost shuts a host down and starts it again, as `systemctl reboot` does: it returns at once. The host's VMs are
// asked to power off, then the host is gone for Durations.BootHost, then it runs with what its disk says, and its VMs
// with onboot=1 start in their order.
func (d *Datacentre) RebootHost(name string) error {
	if err := d.needHost(name); err != nil {
		return err
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	s := d.hostState(name)
	if d.running.Err() != nil || !s.DownUntil.IsZero() {
		return nil
	}

	away := d.options.Clock.Real(d.options.Durations.StopHost + d.options.Durations.BootHost)
	s.DownUntil, s.Problem = time.Now().Add(away), ""

	d.workers.Add(1)

	tell := d.onPower[name]

	go func() {
		for _, f := range tell {
			f(false)
		}

		// Running workers end with the host.
		d.mu.Lock()
		for _, t := range d.state.Tasks {
			if cancel := d.cancels[t.UPID]; t.Host == name && cancel != nil {
				cancel()
			}
		}
		d.mu.Unlock()

		d.powerOffAll(name)
		d.comeUp(name, away)
	}()

	return nil
}

// OnHostPower has a function called whenever a host goes down (false) or is up again, and at once if it is down.
func (d *Datacentre) OnHostPower(name string, tell func(on bool)) {
	d.mu.Lock()
	d.onPower[name] = append(d.onPower[name], tell)
	down := !d.hostState(name).DownUntil.IsZero()
	d.mu.Unlock()

	if down {
		tell(false)
	}
}

// powerOffAll ends a host's VMs, those last that started first.
func (d *Datacentre) powerOffAll(name string) {
	list := d.onHost(name)
	slices.Reverse(list)

	for _, vm := range list {
		if vm.Running {
			d.powerOff(vm.ID)
		}
	}
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

	d.mu.Lock()

	s := d.hostState(name)
	if err != nil {
		s.Problem = err.Error()

		d.mu.Unlock()

		return
	}

	s.DownUntil = time.Time{}
	tell := d.onPower[name]
	d.mu.Unlock()

	for _, f := range tell {
		f(true)
	}

	_, _ = d.spawn(
		rootUser, name, "startall", "", func(ctx context.Context, w *worker) error { return d.startAll(ctx, w, name) },
	)
}

// defaultStartDelay is what Proxmox waits between two VMs whose startup says nothing.
const defaultStartDelay = 3 * time.Second

// startAll starts the VMs with onboot=1. One that does not start is no reason to leave the others off.
func (d *Datacentre) startAll(ctx context.Context, w *worker, name string) error {
	for _, vm := range d.onHost(name) {
		if vm.Running || vm.Template || !vm.Config.Bool("onboot") {
			continue
		}

		w.log("Starting VM %d", vm.ID)

		upid, err := d.Start(rootUser, name, vm.ID)
		if err == nil {
			var t Task
			if t, err = d.WaitTask(ctx, upid); err == nil && !t.OK() {
				w.log("Starting VM %d failed: %s", vm.ID, t.ExitStatus)
			}
		}

		if err != nil {
			w.log("%v", err)
		}

		delay := defaultStartDelay
		if up, err := strconv.Atoi(ParseProperties(vm.Config["startup"], "order").Get("up")); err == nil {
			delay = time.Duration(up) * time.Second
		}

		if err := d.sleep(ctx, delay); err != nil {
			return err
		}
	}

	return nil
}

// onHost are a host's VMs in the order in which it starts them.
func (d *Datacentre) onHost(name string) []VM {
	list := slices.DeleteFunc(d.VMs(), func(vm VM) bool { return vm.Host != name })
	slices.SortStableFunc(list, func(a, b VM) int { return cmp.Compare(startOrder(a.Config), startOrder(b.Config)) })

	return list
}

// startOrder has VMs without an order at the end.
func startOrder(c Config) int {
	const last = 1 << 30

	n, err := strconv.Atoi(strings.TrimSpace(ParseProperties(c["startup"], "order").Get("order")))
	if err != nil {
		return last
	}

	return n
}
