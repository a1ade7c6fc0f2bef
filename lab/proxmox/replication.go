package proxmox

import (
	"fmt"
	"strconv"

	"talos-proxmox/lab/datacentre"
)

// replicationCalls are those of pve-manager 9.2.11 (PVE/API2/ReplicationConfig.pm, Replication.pm).
var replicationCalls = map[string]handler{
	"GET /cluster/replication":         replications().list,
	"POST /cluster/replication":        createReplication,
	"GET /cluster/replication/{id}":    showReplication,
	"PUT /cluster/replication/{id}":    updateReplication,
	"DELETE /cluster/replication/{id}": removeReplication,
	"GET /nodes/{node}/replication":    replicationStatus,
}

func replications() recordKind {
	return recordKind{
		Kind: datacentre.Replications, createCall: "POST /cluster/replication", idTemplate: "{id}",
		errNotFound: func(r *request) error { return datacentre.Refuse("no such job '%s'", r.fill("{id}")) },
		isVisible:   func(r *request, id string, _ datacentre.Config) bool { return r.maySeeGuest(id) },
		addToRow: func(_ *request, id string, record datacentre.Config, o object) {
			vmid := datacentre.ReplicatedVM(id)
			number, _ := strconv.Atoi(id[len(strconv.Itoa(vmid))+1:]) // checked by the schema
			o["id"], o["guest"], o["jobnum"] = id, vmid, number
			setNonEmpty(o, "source", record["source"])
			setNonEmpty(o, "remove_job", record["remove_job"])
		},
		detail: func(r *request, _ string, _ datacentre.Config, o object) any {
			o["digest"] = r.dc.MappingDigest(datacentre.Replications)

			return o
		},
	}
}

func (r *request) maySeeGuest(id string) bool {
	return r.dc.Allowed(r.user, fmt.Sprintf("/vms/%d", datacentre.ReplicatedVM(id)), "VM.Audit")
}

// withReplicate refuses a change by whoever may not replicate the job's VM. Proxmox 8 has another privilege for it,
// which the lab does not check.
func (r *request) withReplicate(id string) error {
	if r.dc.Release() == datacentre.PVE8 {
		return nil
	}

	return r.dc.Authorise(r.user, fmt.Sprintf("/vms/%d", datacentre.ReplicatedVM(id)), "VM.Replicate")
}

func createReplication(r *request) (any, error) {
	id := r.params["id"]
	vmid := datacentre.ReplicatedVM(id)

	if err := r.withReplicate(id); err != nil {
		return nil, err
	}

	if err := r.dc.CheckReplication(id, vmid, r.params); err != nil {
		return nil, err
	}

	vm, _ := r.dc.VM(vmid)
	if source := r.params["source"]; source != "" && source != vm.Host {
		return nil, datacentre.Refuse("Source '%s' does not match current node of guest '%d' (%s)", source, vmid, vm.Host)
	}

	record := datacentre.Config{"source": vm.Host}

	for name, value := range r.params {
		if name != "id" {
			record[name] = value
		}
	}

	r.dc.PutReplication(id, record)

	return nil, nil
}

func showReplication(r *request) (any, error) {
	if _, found := r.dc.Record(datacentre.Replications, r.vars["id"]); !found {
		return nil, datacentre.Refuse("no such replication job '%s'", r.vars["id"])
	}

	path := fmt.Sprintf("/vms/%d", datacentre.ReplicatedVM(r.vars["id"]))
	if err := r.dc.Authorise(r.user, path, "VM.Audit"); err != nil {
		return nil, err
	}

	return replications().show(r)
}

func updateReplication(r *request) (any, error) {
	if err := r.withReplicate(r.vars["id"]); err != nil {
		return nil, err
	}

	if digest := r.params["digest"]; digest != "" && digest != r.dc.MappingDigest(datacentre.Replications) {
		return nil, errModified
	}

	return replications().update(r)
}

func removeReplication(r *request) (any, error) {
	id := r.vars["id"]
	if err := r.withReplicate(id); err != nil {
		return nil, err
	}

	record, found := r.dc.Record(datacentre.Replications, id)

	switch {
	case r.params.Bool("force") && r.params.Bool("keep"):
		return nil, datacentre.WrongParameter("keep", "conflicts with parameter 'force'")
	case r.params.Bool("force"):
		r.dc.Delete(datacentre.Replications, id)
	case !found:
		return nil, datacentre.Refuse("no such job '%s'", id)
	case r.params.Bool("keep"):
		r.dc.PutReplication(id, record.With("remove_job", "local"))
	default:
		r.dc.PutReplication(id, record.With("remove_job", "full"))
	}

	return nil, nil
}

// replicationStatus lists the jobs of the host's VMs with what they did.
func replicationStatus(r *request) (any, error) {
	list := []object{}

	all, err := replications().list(r)
	if err != nil {
		return nil, err
	}

	for _, o := range castOrZero[[]object](all) {
		id := castOrZero[string](o["id"])
		record, _ := r.dc.Record(datacentre.Replications, id)

		vm, exists := r.dc.VM(datacentre.ReplicatedVM(id))
		if !exists || vm.Host != r.vars["node"] {
			continue
		}

		o["vmtype"], o["fail_count"] = "qemu", record.Number("fail_count", 0)
		o["last_sync"] = record.Number("last_sync", 0)
		setNonEmpty(o, "error", record["error"])
		list = append(list, o)
	}

	return list, nil
}
