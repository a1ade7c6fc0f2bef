package datacentre

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Fault is a rule that makes something go wrong. A rule with Method or Path hits requests at the front door; one with Task hits workers; one with
// Offline takes a whole host away.
type Fault struct {
	ID int `json:"id"`
	// Method and Path (a regular expression over "/nodes/pve1/qemu/101/…", without /api2/json) choose requests; empty ones match any.
	Method string `json:"method,omitempty"`
	Path   string `json:"path,omitempty"`
	// Task chooses workers by their type ("qmclone"; "*" for all).
	Task string `json:"task,omitempty"`
	// Host limits the rule to a host.
	Host string `json:"host,omitempty"`
	// VMID limits a rule for workers to a VM.
	VMID int `json:"vmid,omitempty"`
	// Delay is modelled time that passes first.
	Delay time.Duration `json:"delay,omitempty"`
	// Status and Message answer the request; Message alone is how a worker ends.
	Status  int    `json:"status,omitempty"`
	Message string `json:"message,omitempty"`
	// Reset breaks the connection instead of answering: before the request is carried out, or with After when it has been.
	Reset bool `json:"reset,omitempty"`
	After bool `json:"after,omitempty"`
	// Offline makes Host unreachable.
	Offline bool `json:"offline,omitempty"`
	// Times is how often the rule still hits; 0 means for ever.
	Times int `json:"times,omitempty"`
}

type faults struct {
	mu    sync.Mutex
	next  int
	rules []*faultRule
}

type faultRule struct {
	Fault
	path *regexp.Regexp
}

// AddFault adds a rule and returns its id.
func (d *Datacentre) AddFault(f Fault) (int, error) {
	if f.Method == "" && f.Path == "" && f.Task == "" && !f.Offline {
		return 0, errors.New("a fault that matches nothing: state a path, a method, a task type, or a host that is offline")
	}

	if f.Offline && d.host(f.Host) == nil {
		return 0, fmt.Errorf("a fault that takes host %q away: name one of the data centre's hosts", f.Host)
	}

	re, err := regexp.Compile(f.Path)
	if err != nil {
		return 0, fmt.Errorf("a fault's path: %w: state a regular expression over the path", err)
	}

	d.faults.mu.Lock()
	defer d.faults.mu.Unlock()

	d.faults.next++
	f.ID = d.faults.next
	d.faults.rules = append(d.faults.rules, &faultRule{Fault: f, path: re})

	return f.ID, nil
}

// Faults lists the rules that still hit.
func (d *Datacentre) Faults() []Fault {
	d.faults.mu.Lock()
	defer d.faults.mu.Unlock()

	list := make([]Fault, 0, len(d.faults.rules))
	for _, r := range d.faults.rules {
		list = append(list, r.Fault)
	}

	return list
}

// ClearFaults removes the rules with these ids, or all without any.
func (d *Datacentre) ClearFaults(ids ...int) {
	d.faults.mu.Lock()
	defer d.faults.mu.Unlock()

	d.faults.rules = slices.DeleteFunc(d.faults.rules, func(r *faultRule) bool { return len(ids) == 0 || slices.Contains(ids, r.ID) })
}

// RequestFault returns the rule that hits a request, and counts the hit.
func (d *Datacentre) RequestFault(method, path string) (Fault, bool) {
	return d.faults.take(func(r *faultRule) bool {
		return r.Task == "" && !r.Offline && (r.Method == "" || strings.EqualFold(r.Method, method)) && r.path.MatchString(path) &&
			(r.Host == "" || strings.HasPrefix(path+"/", "/nodes/"+r.Host+"/"))
	})
}

func (f *faults) take(hits func(*faultRule) bool) (Fault, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()

	i := slices.IndexFunc(f.rules, hits)
	if i < 0 {
		return Fault{}, false
	}

	r := f.rules[i]
	if r.Times == 1 {
		f.rules = slices.Delete(f.rules, i, i+1)
	} else if r.Times > 1 {
		r.Times--
	}

	return r.Fault, true
}

func (f *faults) offline(host string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()

	return slices.ContainsFunc(f.rules, func(r *faultRule) bool { return r.Offline && r.Host == host })
}

// faultKey carries the error that a rule wants of a worker. The worker meets it at its next pause, halfway through, and cleans up as after any other failure.
type faultKey struct{}

// taskFault is the fate of a worker that a rule hits: the error it is to end with, or one that ends it at once.
func (d *Datacentre) taskFault(ctx context.Context, t *Task) (fault, err error) {
	f, ok := d.faults.take(func(r *faultRule) bool {
		return r.Task != "" && (r.Task == "*" || r.Task == t.Type) && (r.Host == "" || r.Host == t.Host) && (r.VMID == 0 || fmt.Sprint(r.VMID) == t.ID)
	})
	if !ok {
		return nil, nil
	}

	if err := d.sleep(ctx, f.Delay); err != nil || f.Message == "" {
		return nil, err
	}

	return errors.New(f.Message), nil
}
