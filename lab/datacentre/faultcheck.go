package datacentre

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// faultKind is what a fault is about.
type faultKind int

const (
	faultNothing faultKind = iota
	faultRequest
	faultTask
	faultState
)

func (f Fault) kind() faultKind {
	switch {
	case f.states() > 0:
		return faultState
	case f.Task != "":
		return faultTask
	case f.Method != "" || f.Path != "":
		return faultRequest
	default:
		return faultNothing
	}
}

func (f Fault) states() int {
	n := 0

	for _, set := range []bool{
		f.Offline, f.NoQuorum, f.Full != "", f.Lock != "", f.Hangs, f.Reverts, f.NoNetwork, f.NoPackage != "", f.ExpireTickets,
	} {
		if set {
			n++
		}
	}

	return n
}

var (
	methods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete}
	// taskTypes are those of the lab's workers.
	taskTypes = []string{
		"*", "download", "imgcopy", "imgdel", "importdisk", "qmclone", "qmconfig", "qmcreate", "qmdestroy", "qmigrate",
		"qmmove", "qmreboot", "qmreset", "qmshutdown",
		"qmstart", "qmstop", "qmtemplate", "resize", "startall",
	}
	// lockReasons are the values of PVE's "lock".
	lockReasons = []string{
		"backup", "clone", "create", "migrate", "rollback", "snapshot", "snapshot-delete", "suspended", "suspending",
	}
)

// option is an option of `lab fault add`, and whether the fault sets it.
type option struct {
	name string
	set  bool
}

// validate finds what is wrong with a fault in itself.
func (f Fault) validate() error {
	what := []option{
		{"--offline", f.Offline},
		{"--no-quorum", f.NoQuorum},
		{"--full", f.Full != ""},
		{"--lock", f.Lock != ""},
		{"--hangs", f.Hangs},
		{"--reverts", f.Reverts},
		{"--no-network", f.NoNetwork},
		{"--no-package", f.NoPackage != ""},
		{"--expire-tickets", f.ExpireTickets},
		{"--task", f.Task != ""},
		{"--method", f.Method != ""},
		{"--path", f.Path != ""},
	}
	effects := []option{
		{"--delay", f.Delay != 0},
		{"--message", f.Message != ""},
		{"--warnings", f.Warnings != 0},
		{"--status", f.Status != 0},
		{"--reset", f.Reset},
		{"--after", f.After},
		{"--times", f.Times != 0},
	}

	switch f.kind() {
	case faultNothing:
		return errors.New("nothing that goes wrong: state --task, --method or --path, or one of --offline, --no-quorum, --full, --lock, --hangs, --reverts, --no-network, --no-package, --expire-tickets")
	case faultState:
		if f.states() > 1 || f.Task+f.Method+f.Path != "" {
			return fmt.Errorf("%s: one fault is one thing: add one after the other", names(what))
		}

		if wrong := names(effects); wrong != "" {
			return fmt.Errorf("%s: has no meaning with %s: leave it out", wrong, names(what))
		}

		return f.validateState()
	case faultTask:
		return f.validateTask()
	default:
		return f.validateRequest()
	}
}

func names(options []option) string {
	var list []string

	for _, o := range options {
		if o.set {
			list = append(list, o.name)
		}
	}

	return strings.Join(list, ", ")
}

func (f Fault) validateState() error {
	switch {
	case f.Offline && f.Host == "":
		return errors.New("--offline: of which host? Name it with --host")
	case f.Lock != "" && !slices.Contains(lockReasons, f.Lock):
		return fmt.Errorf(
			"--lock %q: not a reason that Proxmox knows: use one of %s", f.Lock, strings.Join(lockReasons, ", "),
		)
	case f.Lock != "" && f.VMID == 0:
		return errors.New("--lock: of which VM? Name it with --vmid")
	case f.Hangs && f.VMID == 0:
		return errors.New("--hangs: which VM? Name it with --vmid")
	case f.Reverts && f.VMID == 0:
		return errors.New("--reverts: which VM? Name it with --vmid")
	case f.NoNetwork && f.VMID == 0:
		return errors.New("--no-network: which VM? Name it with --vmid")
	case f.Lock == "" && !f.Hangs && !f.Reverts && !f.NoNetwork && f.VMID != 0:
		return errors.New("--vmid: goes with --lock, --hangs, --reverts, --no-network or --task: leave it out")
	case f.Host != "" && !f.Offline && f.Full == "":
		return errors.New("--host: goes with --offline, --full, --task or --path: leave it out")
	default:
		return nil
	}
}

func (f Fault) validateTask() error {
	switch {
	case f.Method+f.Path != "" || f.Status != 0 || f.Reset || f.After:
		return errors.New("--task: a task has no --method, --path, --status, --reset or --after: leave them out, or state --path without --task")
	case !slices.Contains(taskTypes, f.Task):
		return fmt.Errorf("--task %q: no such type of task: use one of %s", f.Task, strings.Join(taskTypes, ", "))
	case f.Message != "" && f.Warnings != 0:
		return errors.New("--warnings: a task that ends with --message has not done its work: use one of them")
	case f.Delay == 0 && f.Message == "" && f.Warnings == 0:
		return errors.New("--task: what happens to it? State --message, --warnings or --delay")
	case f.Warnings < 0:
		return fmt.Errorf("--warnings %d: set how many, from 1 on", f.Warnings)
	default:
		return f.validateNumbers()
	}
}

func (f Fault) validateRequest() error {
	if _, err := regexp.Compile(f.Path); err != nil {
		return fmt.Errorf("--path %q: not a regular expression: %w", f.Path, err)
	}

	switch {
	case f.Method != "" && !slices.Contains(methods, strings.ToUpper(f.Method)):
		return fmt.Errorf("--method %q: use one of %s", f.Method, strings.Join(methods, ", "))
	case f.VMID != 0:
		return errors.New("--vmid: goes with --lock, --hangs, --reverts, --no-network or --task; for requests state it in --path, such as /qemu/2000/")
	case f.Warnings != 0:
		return errors.New("--warnings: goes with --task")
	case f.After && !f.Reset:
		return errors.New("--after: goes with --reset")
	case f.Reset && (f.Status != 0 || f.Message != ""):
		return errors.New("--reset: a connection that is reset has no --status and no --message: set one or the other")
	case f.Status != 0 && (f.Status < 400 || f.Status > 599):
		return fmt.Errorf("--status %d: use one from 400 to 599", f.Status)
	case f.Delay == 0 && f.Message == "" && f.Status == 0 && !f.Reset:
		return errors.New("--path: what happens to the requests? State --status, --message, --reset or --delay")
	default:
		return f.validateNumbers()
	}
}

func (f Fault) validateNumbers() error {
	switch {
	case f.Delay < 0:
		return fmt.Errorf("--delay %s: a time does not run backwards: use one like 30s", f.Delay)
	case f.Times < 0:
		return fmt.Errorf("--times %d: set how often, or 0 for always", f.Times)
	default:
		return nil
	}
}

// checkFault finds what a fault names that the data centre does not have; called with the lock held.
func (d *Datacentre) checkFault(f Fault) error {
	var hosts []string

	known := false

	for _, h := range d.hosts {
		hosts = append(hosts, h.Name)

		if f.Host == "" || f.Host == h.Name {
			known = known || slices.ContainsFunc(h.storages, func(s *storage) bool { return s.Name == f.Full })
		}
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
