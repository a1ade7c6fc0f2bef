package datacentre

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// replicationRound is how often Proxmox' scheduler looks for jobs that are due (pvescheduler).
const replicationRound = time.Minute

// Fields of a job's record that are its state, not its configuration.
const (
	replicationLastSync = "last_sync" // in seconds since 1970
	replicationError    = "error"
	replicationFailures = "fail_count"
)

// PutReplication adds or changes a replication job, which the scheduler works on from then on.
func (d *Datacentre) PutReplication(id string, record Config) {
	d.Put(Replications, id, record)

	defer d.lockWrite()()

	d.replicate()
}

// CheckReplication returns why Proxmox refuses a new job of a VM (PVE::API2::ReplicationConfig, create).
func (d *Datacentre) CheckReplication(id string, vmid int, record Config) error {
	defer d.lockRead()()

	v := d.state.VMs[vmid]
	if v == nil {
		return Refuse("Guest '%d' does not exist.", vmid)
	}

	if d.host(record["target"]) == nil {
		return Refuse("Target '%s' does not exist.", record["target"])
	}

	if record["target"] == v.Host {
		return Refuse("Source and target must not be identical")
	}

	volumes, err := d.replicatedVolumes(v)

	switch {
	case err != nil:
		return err
	case len(volumes) == 0:
		return Refuse("No replicatable volumes found")
	case d.state.Records[Replications][id] != nil:
		return Refuse("replication job '%s' already exists", id)
	}

	for _, other := range d.replicationsOf(vmid) {
		if target := d.state.Records[Replications][other]["target"]; target == record["target"] {
			return Refuse("replication job for guest '%d' to target 'local/%s' already exists", vmid, target)
		}
	}

	return nil
}

// replicationsOf returns the ids of a VM's jobs, sorted; it requires the lock.
func (d *Datacentre) replicationsOf(vmid int) []string {
	var ids []string

	for _, id := range slices.Sorted(maps.Keys(d.state.Records[Replications])) {
		if ReplicatedVM(id) == vmid {
			ids = append(ids, id)
		}
	}

	return ids
}

// ReplicatedVM returns the VMID in a job's id, such as 100-0.
func ReplicatedVM(id string) int {
	guest, _, _ := strings.Cut(id, "-")
	vmid, _ := strconv.Atoi(guest) // 0 of none

	return vmid
}

// replicatedVolumes returns the volumes that a job of a VM copies (get_replicatable_volumes of PVE::QemuConfig).
func (d *Datacentre) replicatedVolumes(v *vm) (list []*Volume, err error) {
	for _, dr := range v.Config.drives() {
		vol := d.findVolume(v.Host, dr.volume())

		switch {
		case vol == nil || dr.cdrom() || dr.cloudInit() || vol.Host == "" || vol.VMID != v.ID || slices.Contains(list, vol):
			continue
		case dr.props["replicate"] != "" && !dr.props.Bool("replicate"):
			continue
		}

		if s, err := d.lookupStorage(v.Host, vol.Storage, ""); err != nil || s.Type != "zfspool" {
			return nil, Refuse("missing replicate feature on volume '%s'", vol.ID)
		}

		list = append(list, vol)
	}

	return list, nil
}

// replicate has the scheduler of each host work on jobs until there are none; it requires the lock.
func (d *Datacentre) replicate() {
	if d.replicating || d.ctx.Err() != nil {
		return
	}

	d.replicating = true

	d.workers.Go(func() {
		for d.options.Clock.Sleep(d.ctx, replicationRound) == nil && d.replicateOnce() {
		}
	})
}

// replicateOnce is one round of the scheduler, and reports whether another one is needed.
func (d *Datacentre) replicateOnce() bool {
	defer d.lockWrite()()

	for _, id := range slices.Sorted(maps.Keys(d.state.Records[Replications])) {
		d.replicateJob(id)
	}

	d.replicating = len(d.state.Records[Replications]) > 0

	return d.replicating
}

// replicateJob has a job do what is due (PVE::ReplicationState::job_status, PVE::Replication::replicate).
func (d *Datacentre) replicateJob(id string) {
	v := d.state.VMs[ReplicatedVM(id)]
	if v == nil || !d.isOnline(v.Host) || !d.isQuorate() { // a job of a VM that is gone stays for ever
		return
	}

	d.switchStolen(v)

	job := d.state.Records[Replications][id]

	var err error

	switch {
	case job["remove_job"] != "":
		if err = d.removeReplication(id, v, job); err == nil {
			return
		}
	case job.Bool("disable") || job["target"] == v.Host || !d.isDue(job):
		return
	default:
		err = d.copyReplicated(v, job["target"])
	}

	if err != nil {
		job = job.With(replicationError, err.Error()).
			With(replicationFailures, strconv.Itoa(job.Number(replicationFailures, 0)+1))
	} else {
		job = job.With(replicationLastSync, strconv.FormatInt(time.Now().Unix(), 10)).With(replicationError, "").
			With(replicationFailures, "")
	}

	d.state.Records[Replications][id] = job
}

// switchStolen corrects the jobs of a VM that HA has moved: they copy back to the host that it left; it requires the
// lock.
func (d *Datacentre) switchStolen(v *vm) {
	for _, id := range d.replicationsOf(v.ID) {
		job := d.state.Records[Replications][id]
		if source := job["source"]; source != v.Host {
			if job["target"] == v.Host {
				job = job.With("target", source)
			}

			d.state.Records[Replications][id] = job.With("source", v.Host)
		}
	}
}

// isDue reports whether a job's schedule has come: that of every so many minutes, or every quarter of an hour.
func (d *Datacentre) isDue(job Config) bool {
	minutes, err := strconv.Atoi(strings.TrimPrefix(job["schedule"], "*/"))
	if err != nil {
		minutes = 15
	}

	last, err := strconv.ParseInt(job[replicationLastSync], 10, 64)

	return err != nil || time.Since(time.Unix(last, 0)) >= d.options.Clock.Real(time.Duration(minutes)*time.Minute)
}

// copyReplicated copies a VM's volumes to a host; it requires the lock.
func (d *Datacentre) copyReplicated(v *vm, target string) error {
	if !d.isOnline(target) {
		return fmt.Errorf("command '/usr/bin/ssh … root@%s -- pvesr prepare-local-job' failed: exit code 255", target)
	}

	volumes, err := d.replicatedVolumes(v)
	if err != nil {
		return err
	}

	for _, vol := range volumes {
		s, err := d.lookupStorage(target, vol.Storage, "images")
		if err == nil {
			err = d.checkSpace(s, vol.UsedBytes)
		}

		if err != nil {
			return err
		}
	}

	d.removeCopies(v, target)

	for _, vol := range volumes {
		replica := *vol
		replica.Host, replica.Raw = target, slices.Clone(vol.Raw)
		d.state.Volumes[replica.key()] = &replica
	}

	return nil
}

// removeCopies removes what jobs have copied of a VM to a host, but not a cloud-init drive that the VM has left there.
// It requires the lock.
func (d *Datacentre) removeCopies(v *vm, target string) {
	for _, vol := range d.state.Volumes {
		if s, err := d.lookupStorage(target, vol.Storage, ""); vol.VMID == v.ID && vol.Host == target && target != v.Host &&
			err == nil && s.Type == "zfspool" && !strings.HasSuffix(vol.ID, "-cloudinit") {
			d.deleteVolumes(vol)
		}
	}
}

// removeReplication does what a job that is marked for removal still has to do; it requires the lock.
func (d *Datacentre) removeReplication(id string, v *vm, job Config) error {
	if target := job["target"]; job["remove_job"] == "full" && target != v.Host {
		if !d.isOnline(target) {
			return fmt.Errorf("command '/usr/bin/ssh … root@%s -- pvesr prepare-local-job' failed: exit code 255", target)
		}

		d.removeCopies(v, target)
	}

	delete(d.state.Records[Replications], id)

	return nil
}

// replicatedTo returns the job that copies a VM to a host; it requires the lock.
func (d *Datacentre) replicatedTo(vmid int, host string) (id string, found bool) {
	for _, id := range d.replicationsOf(vmid) {
		if d.state.Records[Replications][id]["target"] == host {
			return id, true
		}
	}

	return "", false
}

// checkReplicatedMove returns why a VM with jobs cannot move (PVE::QemuMigrate, prepare); it requires the lock.
func (d *Datacentre) checkReplicatedMove(v *vm, target string, force bool) error {
	jobs := d.replicationsOf(v.ID)
	id, found := d.replicatedTo(v.ID, target)

	switch {
	case len(jobs) == 0:
		return nil
	case found && d.state.Records[Replications][id]["remove_job"] != "":
		return Refuse("refusing to migrate replicated VM whose replication job is marked for removal")
	case !found && v.Running && !force:
		return Refuse("Cannot live-migrate replicated VM to node '%s' - not a replication target. Use 'force' to override.", target)
	default:
		return nil
	}
}

// moveReplicated moves a VM's volumes to a host that has a copy of them: the former ones are the next copy. It reports
// whether there is a job for that, and requires the lock.
func (d *Datacentre) moveReplicated(v *vm, target string) (moved bool, err error) {
	if _, found := d.replicatedTo(v.ID, target); !found {
		return false, nil
	}

	return true, d.copyReplicated(v, target)
}
