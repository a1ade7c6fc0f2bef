package stacks

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/internal/spec"
)

// TestGitOpsFacts: manifests in Git get where and for whom the cluster itself may store snapshots, if the stack has a
// bucket.
func TestGitOpsFacts(t *testing.T) {
	t.Parallel()

	const (
		hybrid = "age1pq1anything"
		single = "age1lvyvwawkr0mcnnnncaghunadrqkmuf9e6507x9y920xxpp866cnql7dp2z"
	)

	d := deployment{}
	d.plan = &spec.Plan{Stack: "prod", Backup: spec.Backup{Recipients: []string{hybrid, single}}}
	c := spec.Cluster{Name: "home", Proxmox: &spec.Proxmox{Region: "pve"}}
	assert.Equal(t, map[string]string{"CLUSTER_REGION": "pve", "DATASTORES": ""}, d.gitopsFacts(c))

	d.plan.Backup.S3 = &spec.S3{
		Endpoint: "https://s3.example.com", Bucket: "prod-backups", Prefix: "talos/prod", SecretKey: "hunter2",
	}
	assert.Equal(t, map[string]string{
		"BACKUP_NAME": "prod-home", "BACKUP_RECIPIENT": single, "BACKUP_ENDPOINT": "https://s3.example.com",
		"BACKUP_REGION": "", "BACKUP_BUCKET": "prod-backups", "BACKUP_FOLDER": "talos/prod/prod-home",
	}, d.gitopsFacts(spec.Cluster{Name: "home"}))

	d.plan.Backup.S3.Prefix = ""
	assert.Equal(t, "prod-home", d.gitopsFacts(c)["BACKUP_FOLDER"])
}
