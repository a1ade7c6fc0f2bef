package datacentre

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Times of Proxmox' HA manager (pve-ha-manager): it works every ten seconds, and takes over the machines of a host that
// is silent for the watchdog's minute and the lock's two.
const (
	haRound   = 10 * time.Second
	haFencing = 2 * time.Minute
)

// haState is the field of a resource's record with what the manager made of it.
const haState = "crm"

// HAResourceID returns the id of a VM's resource.
func HAResourceID(vmid int) string { return "vm:" + strconv.Itoa(vmid) }

// PutHAResource adds or changes the resource of a VM, and has the manager act on it.
func (d *Datacentre) PutHAResource(vmid int, record Config) {
	d.Put(HAResources, HAResourceID(vmid), record)

	defer d.lockWrite()()

	d.manage(vmid)
}

// DeleteHAResource removes a resource, and its VM from the rules that name it.
func (d *Datacentre) DeleteHAResource(vmid int) {
	d.Delete(HAResources, HAResourceID(vmid))

	defer d.lockWrite()()

	d.purgeHARules(vmid)
}

// purgeHARules requires the lock.
func (d *Datacentre) purgeHARules(vmid int) {
	for name, rule := range d.state.Records[HARules] {
		rest := slices.DeleteFunc(rule.List("resources"), func(id string) bool { return id == HAResourceID(vmid) })
		if len(rest) == 0 {
			delete(d.state.Records[HARules], name)
		} else {
			d.state.Records[HARules][name] = rule.With("resources", strings.Join(rest, ","))
		}
	}
}

// HAState returns the wanted and the present state of a VM's resource; managed is false without one that HA acts on.
func (d *Datacentre) HAState(vmid int) (wanted, present string, managed bool) {
	defer d.lockRead()()

	wanted, managed = d.haWanted(vmid)

	return wanted, d.state.Records[HAResources][HAResourceID(vmid)][haState], managed
}

// haWanted requires the lock.
func (d *Datacentre) haWanted(vmid int) (wanted string, managed bool) {
	record, found := d.state.Records[HAResources][HAResourceID(vmid)]
	if !found || record["state"] == "ignored" {
		return "", false
	}

	switch record["state"] {
	case "stopped", "disabled":
		return record["state"], true
	default:
		return "started", true
	}
}

// request is what Proxmox does instead of a power operation on a VM that HA manages: its task only tells the manager,
// and ends before anything happens (PVE::API2::Qemu).
func (d *Datacentre) request(user, hostName, kind string, vmid int, wanted string) (string, error) {
	defer d.lockWrite()()

	return d.startTask(user, hostName, kind, strconv.Itoa(vmid), func(_ context.Context, w *worker) error {
		w.log("Requesting HA %s for VM %d", strings.TrimPrefix(kind, "ha"), vmid)

		records := d.state.Records[HAResources]
		records[HAResourceID(vmid)] = records[HAResourceID(vmid)].With("state", wanted)
		d.manage(vmid)

		return nil
	})
}

// managed reports whether HA manages a VM.
func (d *Datacentre) managed(vmid int) bool {
	return withLock(d, func() bool {
		_, managed := d.haWanted(vmid)

		return managed
	})
}

// manage has the manager bring a VM into its wanted state, after its next round; it requires the lock. It is called
// after each change of the VM's power, of its host's, and of the resource.
func (d *Datacentre) manage(vmid int) {
	if _, managed := d.haWanted(vmid); !managed || d.managing[vmid] || d.ctx.Err() != nil {
		return
	}

	d.managing[vmid] = true

	d.workers.Go(func() {
		since := time.Now()

		for d.options.Clock.Sleep(d.ctx, haRound) == nil && d.manageOnce(vmid, since) {
		}

		defer d.lockWrite()()

		delete(d.managing, vmid)

		if !d.isSettled(vmid) { // it changed during the last round
			d.manage(vmid)
		}
	})
}

// isSettled reports whether the manager has nothing to do for a VM.
func (d *Datacentre) isSettled(vmid int) bool {
	wanted, managed := d.haWanted(vmid)
	v := d.state.VMs[vmid]

	return !managed || v == nil || v.Running == (wanted == "started") ||
		d.state.Records[HAResources][HAResourceID(vmid)][haState] == "error"
}

// manageOnce is one round, and reports whether another one is needed. Since is when the VM's state or host changed.
func (d *Datacentre) manageOnce(vmid int, since time.Time) (again bool) {
	defer d.lockWrite()()

	wanted, managed := d.haWanted(vmid)
	v := d.state.VMs[vmid]

	switch {
	case !managed || v == nil:
		return false
	case !d.isQuorate():
		return true
	case wanted != "started":
		if v.Running {
			d.runHA(v, "qmshutdown", func(ctx context.Context, _ *worker) error { return d.stop(ctx, v.Host, vmid) })
		}

		d.setHAState(vmid, "stopped")

		return false
	case v.Running:
		d.setHAState(vmid, "started")

		return false
	}

	if !d.isOnline(v.Host) {
		fencing := d.options.Clock.Real(haFencing)
		if d.hasPower(v.Host) || time.Since(since) < fencing {
			d.setHAState(vmid, "fence")

			return true
		}

		if !d.recover(v, nil) {
			d.setHAState(vmid, "recovery")

			return true
		}
	}

	d.startManaged(v)

	return false
}

// startManaged starts a VM, on the next host after each failed start.
func (d *Datacentre) startManaged(v *vm) {
	record := d.state.Records[HAResources][HAResourceID(v.ID)]
	tried := map[string]bool{}

	for range record.Number("max_relocate", 1) + 1 {
		tried[v.Host] = true

		for range record.Number("max_restart", 1) + 1 {
			if d.runHA(v, "qmstart", func(ctx context.Context, w *worker) error { return d.start(ctx, w, v.Host, v.ID) }) {
				d.setHAState(v.ID, "started")

				return
			}
		}

		if !d.recover(v, tried) {
			break
		}
	}

	d.setHAState(v.ID, "error")
}

// runHA runs a task of the manager on a VM, and reports its success.
func (d *Datacentre) runHA(v *vm, kind string, run job) (succeeded bool) {
	upid, err := d.startTask(rootUser, v.Host, kind, strconv.Itoa(v.ID), run)
	if err != nil {
		return false
	}

	_ = d.withoutLock(func() error {
		t, err := d.WaitTask(d.ctx, upid)
		succeeded = err == nil && t.OK()

		return err
	})

	return succeeded
}

// recover moves a VM's configuration to an online host that its rules allow, with the fewest machines, as after
// fencing; its disks stay where they are.
func (d *Datacentre) recover(v *vm, not map[string]bool) bool {
	count := map[string]int{}
	for _, other := range d.state.VMs {
		count[other.Host]++
	}

	target := ""

	for _, h := range d.hosts {
		if h.Name != v.Host && !not[h.Name] && d.isOnline(h.Name) && d.haAllows(v.ID, h.Name) &&
			(target == "" || count[h.Name] < count[target]) {
			target = h.Name
		}
	}

	if target == "" {
		return false
	}

	v.Host = target

	return true
}

// haAllows reports whether a VM's rules allow a host: strict affinities to hosts, and none to other machines there.
func (d *Datacentre) haAllows(vmid int, host string) bool {
	for _, rule := range d.state.Records[HARules] {
		resources := rule.List("resources")
		if rule.Bool("disable") || !slices.Contains(resources, HAResourceID(vmid)) {
			continue
		}

		named := slices.ContainsFunc(rule.List("nodes"), func(n string) bool {
			name, _, _ := strings.Cut(n, ":")

			return name == host
		})
		if rule["type"] == "node-affinity" && rule.Bool("strict") && !named {
			return false
		}

		if rule["affinity"] == "negative" && slices.ContainsFunc(d.sortedVMs(), func(other *vm) bool {
			return other.ID != vmid && other.Host == host && slices.Contains(resources, HAResourceID(other.ID))
		}) {
			return false
		}
	}

	return true
}

func (d *Datacentre) setHAState(vmid int, state string) {
	record := maps.Clone(d.state.Records[HAResources][HAResourceID(vmid)])
	record[haState] = state
	d.state.Records[HAResources][HAResourceID(vmid)] = record
}

// hasPower requires the lock.
func (d *Datacentre) hasPower(host string) bool {
	return !d.hasFault(func(f *Fault) bool { return f.NoPower && f.Host == host })
}

// cutPower stops a host's machines and tasks at once; it requires the lock.
func (d *Datacentre) cutPower(host string) {
	for _, t := range d.state.Tasks {
		if cancel := d.taskCancels[t.UPID]; t.Host == host && cancel != nil {
			cancel()
		}
	}

	for _, v := range d.vmsInStartOrder(host) {
		d.powerOff(v)
	}
}

// CheckHARule returns why Proxmox refuses a rule (PVE::API2::HA::Rules).
func (d *Datacentre) CheckHARule(name string, rule Config) error {
	defer d.lockRead()()

	resources := rule.List("resources")

	var unmanaged []string

	for _, id := range resources {
		if _, found := d.state.Records[HAResources][id]; !found {
			unmanaged = append(unmanaged, id)
		}
	}

	slices.Sort(unmanaged)

	var unknown []string

	for _, n := range rule.List("nodes") {
		if host, _, _ := strings.Cut(n, ":"); d.host(host) == nil {
			unknown = append(unknown, host)
		}
	}

	invalid := func(reason string) error {
		refused := WrongParameter("resources", "%s", reason)
		refused.Message = fmt.Sprintf("Rule '%s' is invalid.", name)

		return refused
	}

	switch {
	case len(unmanaged) > 0:
		return Refuse("cannot use unmanaged resource(s) %s.", strings.Join(unmanaged, ", "))
	case len(unknown) > 0:
		return Refuse("cannot use non-existent node(s) %s.", strings.Join(unknown, ", "))
	case rule["type"] == "resource-affinity" && len(resources) < 2:
		return invalid("rule is ineffective as there are less than two resources")
	case rule["affinity"] == "negative" && len(resources) > len(d.hosts):
		return invalid("rule defines more resources than available nodes")
	case rule.Bool("disable"):
		return nil
	}

	if reason := d.ruleConflict(name, rule); reason != "" {
		return invalid(reason)
	}

	return nil
}

// ruleConflict returns why a rule contradicts another enabled one; empty = it contradicts none (PVE::HA::Rules,
// check_feasibility). It requires the lock.
func (d *Datacentre) ruleConflict(name string, rule Config) string {
	opposite := map[string]string{"negative": "positive", "positive": "negative"}[rule["affinity"]]

	for _, other := range slices.Sorted(maps.Keys(d.state.Records[HARules])) {
		record := d.state.Records[HARules][other]
		if other == name || record.Bool("disable") {
			continue
		}

		common := slices.DeleteFunc(rule.List("resources"), func(id string) bool {
			return !slices.Contains(record.List("resources"), id)
		})

		switch {
		case rule["type"] == "node-affinity" && record["type"] == "node-affinity" && len(common) > 0:
			return fmt.Sprintf("resource '%s' is already used in another node affinity rule", common[0])
		case opposite != "" && record["affinity"] == opposite && len(common) > 1:
			return "rule shares two or more resources with a " + opposite + " resource affinity rule"
		}
	}

	return ""
}
