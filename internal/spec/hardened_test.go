package spec_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/spec"
)

// TestHardened: what a stack file says itself stays, also of one key in a map; the rest is switched on.
func TestHardened(t *testing.T) {
	t.Parallel()

	const volume = "apiVersion: v1alpha1\nkind: UserVolumeConfig\nname: data\n" +
		"provisioning: {diskSelector: {match: \"!system_disk\"}, minSize: 10GiB}\n"

	plan, err := spec.Load(changed(t, map[string]any{
		"clusters[0].security":              "hardened",
		"clusters[0].firewall":              map[string]any{},
		"clusters[0].encryption":            map[string]any{"ephemeral": "none"},
		"clusters[0].workers[0].encryption": map[string]any{"volumes": map[string]any{"data": "nodeID"}},
		"clusters[0].patches":               []any{volume},
		"clusters[0].controlPlane.count":    1,
	}), options())
	require.NoError(t, err)

	cluster := plan.Clusters[0]
	assert.Equal(t, spec.Encryption{State: "nodeID", Ephemeral: "none"}, *cluster.ControlPlanes[0].Encryption)
	assert.Equal(t, spec.Encryption{
		State: "nodeID", Ephemeral: "nodeID", Volumes: map[string]string{"data": "nodeID"},
	}, *cluster.Workers[0].Encryption)
	assert.Equal(t, "baseline", cluster.APIServer.PodSecurity.Enforce)
	assert.Equal(t, "Metadata", cluster.APIServer.AuditPolicy.Rules[len(cluster.APIServer.AuditPolicy.Rules)-1].Level)
	assert.NotNil(t, cluster.Firewall)
	assert.Equal(t, []string{"encryption of disks"}, cluster.Unhardened())
	assert.Contains(t, plan.Warnings, "clusters[0].encryption.volumes.data is not set, and security: hardened does not encrypt "+
		"user volumes; set it to nodeID, or to none")

	plan, err = spec.Load(changed(t, map[string]any{
		"clusters[0].security":              "hardened",
		"clusters[0].firewall":              map[string]any{"ingress": "accept"},
		"clusters[0].apiServer.podSecurity": map[string]any{"enforce": "privileged"},
		"clusters[0].apiServer.auditPolicy": map[string]any{"rules": []any{map[string]any{"level": "None"}}},
	}), options())
	require.NoError(t, err)
	assert.Equal(t, []string{"firewall", "Pod Security", "audit log"}, plan.Clusters[0].Unhardened())
	assert.Nil(t, plan.Clusters[0].Firewall)
}
