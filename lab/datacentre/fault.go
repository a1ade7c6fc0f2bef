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

// Fault is something that goes wrong. It is one of a rule over requests (Method, Path), a rule over tasks (Task), or a
// state of the data centre (Offline, NoQuorum, Full, Lock, Hangs, Reverts, NoNetwork, NoPackage, ExpireTickets), which
// lasts until it is cleared. All of them are saved with the data centre.
type Fault struct {
	ID int `json:"id"`
	// Method and Path (a regular expression over "/nodes/pve1/qemu/101/…", without /api2/json) choose requests; empty ones
	// match any.
	Method string `json:"method,omitempty"`
	Path   string `json:"path,omitempty"`
	// Task chooses workers by their type ("qmclone"; "*" for all).
	Task string `json:"task,omitempty"`
	// Host limits the fault to a host.
	Host string `json:"host,omitempty"`
	// VMID is the VM that Lock locks, that Hangs or Reverts, or that has NoNetwork, or limits a rule over tasks to a VM.
	VMID int `json:"vmid,omitempty"`
	// Delay is modelled time that passes first.
	Delay time.Duration `json:"delay,omitempty"`
	// Status and Message answer the request; Message alone is how a worker ends.
	Status  int    `json:"status,omitempty"`
	Message string `json:"message,omitempty"`
	// Warnings lets a worker do its work and end with "WARNINGS: n".
	Warnings int `json:"warnings,omitempty"`
	// Reset breaks the connection instead of answering: before the request is carried out, or with After when it has been.
	Reset bool `json:"reset,omitempty"`
	After bool `json:"after,omitempty"`
	// Times is how often the rule still hits; 0 means forever.
	Times int `json:"times,omitempty"`

	// Offline makes Host unreachable.
	Offline bool `json:"offline,omitempty"`
	// NoQuorum takes the cluster's quorum: what would write the cluster's configuration is refused, reads and running
	// machines are not affected.
	NoQuorum bool `json:"noQuorum,omitempty"`
	// Full is a storage, of Host or of all hosts, on which nothing is free.
	Full string `json:"full,omitempty"`
	// Lock is the reason for which VMID is locked, such as "backup".
	Lock string `json:"lock,omitempty"`
	// Hangs stops VMID, which does not have to exist yet, during its boot, before its network is up.
	Hangs bool `json:"hangs,omitempty"`
	// Reverts has no system start on VMID that an upgrade installed: the machine goes back to the one before.
	Reverts bool `json:"reverts,omitempty"`
	// NoNetwork takes VMID's network away: nothing answers on any of its cards. Of Talos, a firewall lets nobody
	// through to its API, and all else goes on. It does not have to exist yet.
	NoNetwork bool `json:"noNetwork,omitempty"`
	// NoPackage is a package that the mirrors of operating systems do not have.
	NoPackage string `json:"noPackage,omitempty"`
	// ExpireTickets makes all tickets given out until Since invalid; logging in gives new ones.
	ExpireTickets bool      `json:"expireTickets,omitempty"`
	Since         time.Time `json:"since,omitzero"`
}

// AddFault adds a fault and returns its id. Its errors name the options of `lab fault add`.
func (d *Datacentre) AddFault(f Fault) (int, error) {
	defer d.changing()()

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

	if f.Offline {
		d.tell(f.Host)
	}

	return f.ID, nil
}

// Faults lists the faults that are set.
func (d *Datacentre) Faults() []Fault {
	defer d.changing()()

	d.forgetUnlocked()

	list := make([]Fault, 0, len(d.state.Faults))
	for _, f := range d.state.Faults {
		list = append(list, *f)
	}

	return list
}

// ClearFaults removes the faults with these ids, or all without any. An unknown id is an error, and nothing is removed
// then.
func (d *Datacentre) ClearFaults(ids ...int) error {
	defer d.changing()()

	d.forgetUnlocked()

	for _, id := range ids {
		if !slices.ContainsFunc(d.state.Faults, func(f *Fault) bool { return f.ID == id }) {
			return fmt.Errorf("fault %d is not set: `lab fault list` shows those that are", id)
		}
	}

	var back []string

	d.state.Faults = slices.DeleteFunc(d.state.Faults, func(f *Fault) bool {
		gone := len(ids) == 0 || slices.Contains(ids, f.ID)

		switch {
		case gone && f.Lock != "":
			d.state.VMs[f.VMID].Lock = ""
		case gone && f.Offline:
			back = append(back, f.Host)
		}

		return gone
	})

	for _, host := range back {
		d.tell(host)
	}

	return nil
}

// forgetUnlocked drops locks that something else has removed, or whose VM is gone; called with the lock held.
func (d *Datacentre) forgetUnlocked() {
	d.state.Faults = slices.DeleteFunc(d.state.Faults, func(f *Fault) bool {
		v := d.state.VMs[f.VMID]

		return f.Lock != "" && (v == nil || v.Lock != f.Lock)
	})
}

// RequestFault returns the rule that hits a request, and counts the hit.
func (d *Datacentre) RequestFault(method, path string) (Fault, bool) {
	defer d.changing()()

	return d.takeFault(func(f *Fault) bool {
		matches, err := regexp.MatchString(f.Path, path)

		return f.Method+f.Path != "" && (f.Method == "" || strings.EqualFold(f.Method, method)) && matches && err == nil &&
			(f.Host == "" || strings.HasPrefix(path+"/", "/nodes/"+f.Host+"/"))
	})
}

func (d *Datacentre) takeFault(hits func(*Fault) bool) (Fault, bool) {
	i := slices.IndexFunc(d.state.Faults, hits)
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

// anyFault is called with the lock held.
func (d *Datacentre) anyFault(hits func(*Fault) bool) bool {
	return slices.ContainsFunc(d.state.Faults, hits)
}

// Hangs says whether a VM's guest hangs in its boot.
func (d *Datacentre) Hangs(vmid int) bool {
	return d.faulty(func(f *Fault) bool { return f.Hangs && f.VMID == vmid })
}

// Reverts says whether no system of an upgrade starts on a VM.
func (d *Datacentre) Reverts(vmid int) bool {
	return d.faulty(func(f *Fault) bool { return f.Reverts && f.VMID == vmid })
}

// Unplugged says whether a VM's network is away.
func (d *Datacentre) Unplugged(vmid int) bool {
	return d.faulty(func(f *Fault) bool { return f.NoNetwork && f.VMID == vmid })
}

// Lacks says whether the mirrors of operating systems do not have a package.
func (d *Datacentre) Lacks(name string) bool {
	return d.faulty(func(f *Fault) bool { return f.NoPackage == name })
}

// faulty is anyFault without the lock held.
func (d *Datacentre) faulty(hits func(*Fault) bool) bool {
	return locked(d, func() bool { return d.anyFault(hits) })
}

// TicketsSince returns the moment until which all tickets have become invalid; zero if none have.
func (d *Datacentre) TicketsSince() time.Time {
	defer d.reading()()

	var since time.Time

	for _, f := range d.state.Faults {
		if f.Since.After(since) {
			since = f.Since
		}
	}

	return since
}

// faultKey carries the error that a rule wants of a worker. The worker meets it at its next pause, halfway through, and
// cleans up as after any other failure.
type faultKey struct{}

// taskFault is the fate of a worker that a rule hits: the error or the warnings it is to end with, or an error that
// ends it at once.
func (d *Datacentre) taskFault(ctx context.Context, t *Task) (fault error, warnings int, err error) {
	f, ok := d.takeFault(func(f *Fault) bool {
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

// checkFault finds what a fault names that the data centre does not have; called with the lock held.
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
		return errors.New("--no-quorum: a host that stands alone always has it")
	default:
		return nil
	}
}
