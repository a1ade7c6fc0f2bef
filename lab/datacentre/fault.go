package datacentre

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Fault is an injected fault: a rule for requests (Method, Path) or for tasks (Task), or a state of the data centre
// (Offline, NoPower, NoQuorum, Full, Lock, Hangs, Reverts, NoNetwork, NoPackage, ExpireTickets) that lasts until it is
// cleared.
// Faults are saved with the data centre.
type Fault struct {
	ID int `json:"id"`
	// Method and Path (a regular expression for "/nodes/pve1/qemu/101/…", without /api2/json) select requests; empty
	// ones match all.
	Method string `json:"method,omitempty"`
	Path   string `json:"path,omitempty"`
	// Task selects tasks by their type ("qmclone"; "*" for all).
	Task string `json:"task,omitempty"`
	// Host limits the fault to a host.
	Host string `json:"host,omitempty"`
	// VMID is the VM of Lock, Hangs, Reverts and NoNetwork, or limits a rule for tasks to a VM.
	VMID int `json:"vmid,omitempty"`
	// Delay is how long the request or task is delayed, in modelled time.
	Delay time.Duration `json:"delay,omitempty"`
	// Status and Message are the response to the request; Message alone is the exit status of a task.
	Status  int    `json:"status,omitempty"`
	Message string `json:"message,omitempty"`
	// Warnings makes a task succeed with "WARNINGS: n".
	Warnings int `json:"warnings,omitempty"`
	// Reset resets the connection instead of responding: before the request is executed, or afterwards with After.
	Reset bool `json:"reset,omitempty"`
	After bool `json:"after,omitempty"`
	// Times is how many more times the rule applies; 0 means always.
	Times int `json:"times,omitempty"`

	// Offline makes Host unreachable.
	Offline bool `json:"offline,omitempty"`
	// NoPower takes Host's power: its machines stop, and it boots when the fault is cleared.
	NoPower bool `json:"noPower,omitempty"`
	// NoQuorum takes the cluster's quorum: writes to the cluster's configuration are refused, reads and running
	// machines are not affected.
	NoQuorum bool `json:"noQuorum,omitempty"`
	// Full names a storage, of Host or of all hosts, without free space.
	Full string `json:"full,omitempty"`
	// Lock is the reason for which VMID is locked, such as "backup".
	Lock string `json:"lock,omitempty"`
	// Hangs stops VMID, which need not exist yet, in its boot, before its network is up.
	Hangs bool `json:"hangs,omitempty"`
	// Reverts makes every upgraded system on VMID fail to boot: the machine rolls back to the previous one.
	Reverts bool `json:"reverts,omitempty"`
	// NoNetwork disconnects VMID, which need not exist yet, from the network. On Talos, only the API becomes
	// unreachable, as behind a firewall.
	NoNetwork bool `json:"noNetwork,omitempty"`
	// NoPackage names a package that the mirrors of operating systems do not have.
	NoPackage string `json:"noPackage,omitempty"`
	// ExpireTickets invalidates all tickets issued until Since; a new login gets a valid one.
	ExpireTickets bool      `json:"expireTickets,omitempty"`
	Since         time.Time `json:"since,omitzero"`
}

// AddFault adds a fault and returns its id. Errors name the options of `lab fault add`.
func (d *Datacentre) AddFault(f Fault) (int, error) {
	defer d.lockWrite()()

	if err := d.checkFault(f); err != nil {
		return 0, err
	}

	if f.Lock != "" {
		d.state.VMs[f.VMID].Lock = f.Lock
	}

	if f.ExpireTickets {
		f.Since = time.Now()
	}

	d.state.NextFault++
	f.ID = d.state.NextFault
	d.state.Faults = append(d.state.Faults, &f)

	if f.NoPower {
		d.cutPower(f.Host)
	}

	if f.Offline || f.NoPower {
		d.notifyPower(f.Host)
	}

	return f.ID, nil
}

// Faults returns the active faults.
func (d *Datacentre) Faults() []Fault {
	defer d.lockWrite()()

	d.pruneLockFaults()

	list := make([]Fault, 0, len(d.state.Faults))
	for _, f := range d.state.Faults {
		list = append(list, *f)
	}

	return list
}

// ClearFaults removes the faults with these ids, or all without ids. With an unknown id, it removes nothing and fails.
func (d *Datacentre) ClearFaults(ids ...int) error {
	defer d.lockWrite()()

	d.pruneLockFaults()

	for _, id := range ids {
		if !slices.ContainsFunc(d.state.Faults, func(f *Fault) bool { return f.ID == id }) {
			return fmt.Errorf("fault %d is not set: `lab fault list` shows those that are", id)
		}
	}

	var online, powered []string

	d.state.Faults = slices.DeleteFunc(d.state.Faults, func(f *Fault) bool {
		cleared := len(ids) == 0 || slices.Contains(ids, f.ID)

		switch {
		case cleared && f.Lock != "":
			d.state.VMs[f.VMID].Lock = ""
		case cleared && f.Offline:
			online = append(online, f.Host)
		case cleared && f.NoPower:
			powered = append(powered, f.Host)
		}

		return cleared
	})

	for _, host := range online {
		d.notifyPower(host)
	}

	for _, host := range powered {
		downtime := d.options.Clock.Real(d.options.Durations.BootHost)
		d.hostState(host).DownUntil = time.Now().Add(downtime)

		d.workers.Go(func() { d.bootAfter(host, downtime) })
	}

	return nil
}

// pruneLockFaults removes the Lock faults whose lock or VM is gone; it requires the lock.
func (d *Datacentre) pruneLockFaults() {
	d.state.Faults = slices.DeleteFunc(d.state.Faults, func(f *Fault) bool {
		v := d.state.VMs[f.VMID]

		return f.Lock != "" && (v == nil || v.Lock != f.Lock)
	})
}

// RequestFault returns the rule that applies to a request, and counts it against Times.
func (d *Datacentre) RequestFault(method, path string) (Fault, bool) {
	defer d.lockWrite()()

	return d.consumeFault(func(f *Fault) bool {
		matches, err := regexp.MatchString(f.Path, path)

		return f.Method+f.Path != "" && (f.Method == "" || strings.EqualFold(f.Method, method)) && matches && err == nil &&
			(f.Host == "" || strings.HasPrefix(path+"/", "/nodes/"+f.Host+"/"))
	})
}

func (d *Datacentre) consumeFault(match func(*Fault) bool) (Fault, bool) {
	i := slices.IndexFunc(d.state.Faults, match)
	if i < 0 {
		return Fault{}, false
	}

	f := *d.state.Faults[i]

	switch f.Times {
	case 0:
	case 1:
		d.state.Faults = slices.Delete(d.state.Faults, i, i+1)
	default:
		d.state.Faults[i].Times--
	}

	return f, true
}

// hasFault requires the lock.
func (d *Datacentre) hasFault(match func(*Fault) bool) bool {
	return slices.ContainsFunc(d.state.Faults, match)
}

// IsHanging reports whether a VM's guest hangs in its boot.
func (d *Datacentre) IsHanging(vmid int) bool {
	return d.isFaultSet(func(f *Fault) bool { return f.Hangs && f.VMID == vmid })
}

// IsReverting reports whether upgraded systems fail to boot on a VM.
func (d *Datacentre) IsReverting(vmid int) bool {
	return d.isFaultSet(func(f *Fault) bool { return f.Reverts && f.VMID == vmid })
}

// IsUnplugged reports whether a VM is disconnected from the network.
func (d *Datacentre) IsUnplugged(vmid int) bool {
	return d.isFaultSet(func(f *Fault) bool { return f.NoNetwork && f.VMID == vmid })
}

// LacksPackage reports whether the mirrors of operating systems lack a package.
func (d *Datacentre) LacksPackage(name string) bool {
	return d.isFaultSet(func(f *Fault) bool { return f.NoPackage == name })
}

// isFaultSet is hasFault without the lock held.
func (d *Datacentre) isFaultSet(match func(*Fault) bool) bool {
	return withLock(d, func() bool { return d.hasFault(match) })
}

// TicketsRevokedAt returns the time until which all issued tickets are invalid, or zero.
func (d *Datacentre) TicketsRevokedAt() time.Time {
	defer d.lockRead()()

	var since time.Time

	for _, f := range d.state.Faults {
		if f.Since.After(since) {
			since = f.Since
		}
	}

	return since
}

// faultKey is the context key of the error with which a rule makes a worker fail. The worker returns it at its next
// sleep, so halfway through, and rolls back as after any other failure.
type faultKey struct{}

// taskFault applies a rule to a worker: it returns the error or the number of warnings for the worker's end, or an
// error that ends it at once.
func (d *Datacentre) taskFault(ctx context.Context, t *Task) (fault error, warnings int, err error) {
	f, ok := d.consumeFault(func(f *Fault) bool {
		return f.Task != "" && (f.Task == "*" || f.Task == t.Type) && (f.Host == "" || f.Host == t.Host) &&
			(f.VMID == 0 || fmt.Sprint(f.VMID) == t.ID)
	})
	if !ok {
		return nil, 0, nil
	}

	if err := d.sleep(ctx, f.Delay); err != nil || f.Message == "" {
		return nil, f.Warnings, err
	}

	return errors.New(f.Message), 0, nil
}

// checkFault refuses hosts, storages and VMs that the data centre does not have; it requires the lock.
func (d *Datacentre) checkFault(f Fault) error {
	var hosts []string

	known := false

	for _, h := range d.hosts {
		_, err := d.findStorage(h.Name, f.Full)
		known = known || err == nil && (f.Host == "" || f.Host == h.Name)
		hosts = append(hosts, h.Name)
	}

	v := d.state.VMs[f.VMID]

	switch {
	case f.Host != "" && !slices.Contains(hosts, f.Host):
		return fmt.Errorf("--host %q: no such host: use one of %s", f.Host, strings.Join(hosts, ", "))
	case f.Full != "" && !known:
		return fmt.Errorf("--full %q: no such storage on %s", f.Full, strings.Join(hosts, ", "))
	case f.Lock != "" && v == nil:
		return fmt.Errorf("--vmid %d: no such VM: `lab status` lists them", f.VMID)
	case f.Lock != "" && v.Lock != "":
		return fmt.Errorf("--vmid %d: it is locked already (%s)", f.VMID, v.Lock)
	case f.NoQuorum && d.options.Cluster == "":
		return errors.New("--no-quorum: a standalone host always has quorum")
	default:
		return nil
	}
}
