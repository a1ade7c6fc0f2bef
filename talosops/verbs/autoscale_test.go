package verbs

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/goldentest"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/verbtest"
)

// TestAutoscale: a cluster gets a Secret and a ConfigMap, a second run changes nothing, and both are removed, but not
// while Proxmox has machines of the autoscaler. A cluster that does not answer keeps them.
func TestAutoscale(t *testing.T) {
	const path = "/api/v1/namespaces/kube-system/"

	proxmox := &fakeAPI{t: t}
	settings := proxmox.settings("", func(w http.ResponseWriter, _ *http.Request, _ string, _ map[string]any) {
		proxmox.answer(w, []any{
			map[string]any{
				"type": "qemu", "vmid": 20000, "name": "one", "node": "pve1", "tags": "autoscaled-9f86-c-burst;worker",
			},
			map[string]any{"type": "qemu", "vmid": 20001, "name": "two", "node": "pve1"},
		})
	})
	api := clustertest.NewAPI(nil)
	served := clustertest.Serve(t, &clustertest.TalosNode{}, api)
	handOver := func(marker string, flags ...string) (progress string, err error) {
		_, progress, err = run(t, "autoscale", request.Autoscale{
			Common: served.Common, Kubeconfig: served.Kubeconfig,
			UserData: "machine: {token: hunter2, name: '{{.Metadata.Hostname}}'}",
			Proxmox:  settings, Pool: "burst", Marker: marker, Region: "homelab", Template: "talos-v1.14.4-talos",
			Hosts: []string{"pve1", "pve2"}, FirstVMID: 20000,
			PVEPool: "autoscaled", Datastore: "local-zfs", Max: 5, Cores: 4, MemoryMiB: 16384, DiskGiB: 100,
			Tags: []string{"talos", "worker"}, Labels: map[string]string{"example.org/kind": "burst"},
			Taints: map[string]string{"dedicated": "burst:NoSchedule"}, Talos: "v1.14.4", KubernetesVersion: "v1.37.2",
		}, verbtest.NoInterrupt, append(flags, "--interval", "10ms")...)

		return progress, err
	}

	progress, err := handOver("autoscaled-9f86-prod-burst")
	require.NoError(t, err)
	assert.Contains(t, progress, "Secret kube-system/autoscale-burst: applied")
	assert.NotContains(t, progress, "hunter2")

	data, _ := api.Objects[path+"configmaps/autoscale-burst"]["data"].(map[string]any)
	goldentest.Equal(t, "testdata/karpenter.yaml", data["karpenter.yaml"].(string))

	progress, err = handOver("autoscaled-9f86-prod-burst")
	require.NoError(t, err)
	assert.Empty(t, progress)

	_, err = handOver("autoscaled-9f86-c-burst", "--remove") // a machine has this tag
	require.ErrorContains(t, err, "machines are there that an autoscaler added to pool burst, and nothing was deleted:\n"+
		"  VM 20000 one on pve1\nscale in first: `kubectl delete nodepool burst`")
	assert.Len(t, api.Objects, 2)

	progress, err = handOver("autoscaled-9f86-prod-burst", "--remove")
	require.NoError(t, err)
	assert.Contains(t, progress, "ConfigMap kube-system/autoscale-burst: deleted")
	assert.Empty(t, api.Objects)

	t.Setenv(request.ForceVariable, "1")

	_, err = handOver("autoscaled-9f86-c-burst", "--remove")
	require.NoError(t, err)
}
