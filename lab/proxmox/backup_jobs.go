package proxmox

import (
	"crypto/rand"
	"encoding/hex"

	"talos-proxmox/lab/datacentre"
)

// backupCalls are those of pve-manager 9.2.11 (PVE/API2/Backup.pm) about jobs.
var backupCalls = map[string]handler{
	"GET /cluster/backup":         backupJobs().list,
	"POST /cluster/backup":        createBackupJob,
	"GET /cluster/backup/{id}":    backupJobs().show,
	"PUT /cluster/backup/{id}":    updateBackupJob,
	"DELETE /cluster/backup/{id}": backupJobs().remove,
}

func backupJobs() recordKind {
	return recordKind{
		Kind: datacentre.BackupJobs, createCall: "POST /cluster/backup", idTemplate: "{id}",
		defaults: datacentre.Config{"enabled": "1"},
		errNotFound: func(r *request) error {
			return datacentre.WrongParameter("id", "No such job '%s'", r.vars["id"])
		},
		addToRow: func(_ *request, _ string, _ datacentre.Config, row object) { row["type"] = "vzdump" },
		detail: func(_ *request, id string, _ datacentre.Config, row object) any {
			row["id"] = id

			return row
		},
	}
}

func createBackupJob(r *request) (any, error) {
	if err := r.withBackupStorage(r.params); err != nil {
		return nil, err
	}

	if r.params["schedule"] == "" {
		return nil, datacentre.WrongParameter("schedule", "neither 'starttime' nor 'schedule' were set")
	}

	if r.params["vmid"] == "" && r.params["pool"] == "" && !r.params.Bool("all") && r.params["exclude"] == "" {
		return nil, datacentre.WrongParameter("vmid", "property is missing")
	}

	id := r.params["id"]
	if id == "" {
		id = newJobID()
	}

	if _, taken := r.dc.Record(datacentre.BackupJobs, id); taken {
		return nil, datacentre.Refuse("Job '%s' already exists", id)
	}

	record := datacentre.Config{}

	for name, value := range r.params {
		if name != "id" {
			record[name] = value
		}
	}

	r.dc.Put(datacentre.BackupJobs, id, record)

	return nil, nil
}

func newJobID() string {
	random := make([]byte, 8)
	_, _ = rand.Read(random) // it never fails

	return "backup-" + hex.EncodeToString(random)
}

func updateBackupJob(r *request) (any, error) {
	if err := r.withBackupStorage(r.params); err != nil {
		return nil, err
	}

	return backupJobs().update(r)
}

// withBackupStorage refuses a job by whoever may not remove backups from its storage.
func (r *request) withBackupStorage(job datacentre.Config) error {
	storage := job["storage"]
	if storage == "" && r.route.method == "POST" {
		storage = "local"
	}

	if storage == "" {
		return nil
	}

	return r.dc.Authorise(r.user, "/storage/"+storage, "Datastore.Allocate")
}
