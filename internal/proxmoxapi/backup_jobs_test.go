package proxmoxapi_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/proxmoxapi"
)

func TestBackupJobs(t *testing.T) {
	t.Parallel()

	web := proxmoxapi.Listed{VMID: 3000, Host: "pve1", Pool: "saved"}

	for text, includes := range map[string]bool{
		`{"vmid": "100,3000", "enabled": 1}`: true,
		`{"vmid": 3000}`:                     true,
		`{"vmid": "100;3000 200"}`:           true,
		`{"vmid": "30000,300"}`:              false,
		`{"vmid": "3000", "enabled": 0}`:     false,
		`{"vmid": "3000", "node": "pve2"}`:   false,
		`{"vmid": "3000", "node": "pve1"}`:   true,
		`{"pool": "saved"}`:                  true,
		`{"pool": "other", "vmid": "3000"}`:  false,
		`{"all": 1}`:                         true,
		`{"all": 1, "exclude": "3000,100"}`:  false,
		`{"all": 0}`:                         false,
		`{}`:                                 false,
	} {
		var job proxmoxapi.BackupJob

		require.NoError(t, json.Unmarshal([]byte(text), &job), text)
		assert.Equal(t, includes, job.Includes(web), text)
	}
}
