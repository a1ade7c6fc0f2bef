package datacentre

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"talos-proxmox/lab/schema"
)

var (
	methods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete}
	// taskTypes are those of the lab's workers.
	taskTypes = []string{
		"*", "download", "imgcopy", "imgdel", "importdisk", "qmclone", "qmconfig", "qmcreate", "qmdestroy", "qmigrate",
		"qmmove", "qmreboot", "qmreset", "qmshutdown",
		"qmstart", "qmstop", "qmtemplate", "resize", "startall",
	}
)

// validate finds what is wrong with a fault in itself; which options go together, `lab fault add` says.
func (f Fault) validate() error {
	locks, _ := schema.Config("lock")

	for _, v := range []struct {
		option, value string
		known         []string
	}{
		{"--lock", f.Lock, locks.Enum}, {"--task", f.Task, taskTypes}, {"--method", strings.ToUpper(f.Method), methods},
	} {
		if v.value != "" && !slices.Contains(v.known, v.value) {
			return fmt.Errorf("%s %q: there is none: use one of %s", v.option, v.value, strings.Join(v.known, ", "))
		}
	}

	if _, err := regexp.Compile(f.Path); err != nil {
		return fmt.Errorf("--path %q: not a regular expression: %w", f.Path, err)
	}

	effect := f.Message != "" || f.Status != 0 || f.Reset || f.Warnings != 0 || f.Delay != 0

	switch {
	case f.Offline && f.Host == "":
		return errors.New("--offline: state which --host")
	case (f.Lock != "" || f.Hangs || f.Reverts || f.NoNetwork) && f.VMID == 0:
		return errors.New("--lock, --hangs, --reverts, --no-network: state which --vmid")
	case f.Task+f.Method+f.Path != "" && !effect:
		return errors.New("--task, --method, --path: state what happens: --message, --delay, --status, --reset or --warnings")
	case f.Warnings < 0:
		return fmt.Errorf("--warnings %d: set how many, from 1 on", f.Warnings)
	case f.After && !f.Reset:
		return errors.New("--after: goes with --reset")
	case f.Status != 0 && (f.Status < 400 || f.Status > 599):
		return fmt.Errorf("--status %d: use one from 400 to 599", f.Status)
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
			known = known || slices.ContainsFunc(h.Storages, func(s StorageOptions) bool { return s.Name == f.Full })
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
