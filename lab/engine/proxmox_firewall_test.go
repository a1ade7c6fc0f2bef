package engine_test

import (
	"net/netip"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// TestProxmoxFirewall puts Proxmox' firewall in front of a running cluster, changes its rules, and removes it. Rules of
// others stay, and a security group that does not exist is refused.
func TestProxmoxFirewall(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := w.stack(1, 1)
	cluster := &s.Clusters[0]
	controlPlane, worker := w.network+".1.10:50000", w.network+".1.20:50000"
	api := w.network + ".1.10:6443"
	here, stranger := "127.0.0.1", w.network+".9.9"
	talosOnly := "firewall: {admin: [127.0.0.0/16]}" // smaller networks are mapped to the lab's

	comments := func(name string) (list []string) {
		for _, rule := range w.lab.Data.Firewall(w.vm(name).ID).Rules {
			list = append(list, rule["comment"])
		}

		return list
	}
	filtered := func(name string) bool { return w.vm(name).Config.Properties("net0").Bool("firewall") }
	proxmoxAdmits := func(name, end string) bool {
		return w.lab.Data.FirewallAdmits(w.vm(name).ID, netip.MustParseAddr(stranger), netip.MustParseAddrPort(end))
	}

	cluster.YAML = talosOnly

	w.up(s.yaml(t))
	require.False(t, filtered("one-cp-1"))

	cluster.YAML = "firewall: {admin: [127.0.0.0/16], proxmox: {securityGroups: [web]}}"
	_, err := w.preview(s.yaml(t))
	require.Error(t, err)
	assert.Contains(t, w.output(), `clusters[0].firewall.proxmox.securityGroups[0]: "web" does not exist`)

	cluster.YAML = "firewall: {admin: [127.0.0.0/16], proxmox: {}}"

	assert.Contains(t, w.previewOutput(s.yaml(t)), "clusters[0].firewall.proxmox: has no effect, because the firewall of the "+
		"data centre is off")
	w.up(s.yaml(t))
	assert.Contains(t, w.output(), "Proxmox' firewall in front of one-cp-1 is set, and has no effect")
	assert.True(t, filtered("one-cp-1") && filtered("one-general-1"))
	assert.Contains(t, comments("one-cp-1"), "talos-proxmox: etcd")
	assert.NotContains(t, comments("one-general-1"), "talos-proxmox: etcd")
	assert.True(t, proxmoxAdmits("one-general-1", worker))
	w.lab.Data.SetFirewallOptions(datacentre.Config{"enable": "1"}, nil)
	w.up(s.yaml(t), optup.Refresh(), optup.ExpectNoChanges())

	for _, end := range []string{controlPlane, worker, api} {
		assert.True(t, admits(here, end), end)
		assert.False(t, admits(stranger, end), end)
	}

	assert.False(t, proxmoxAdmits("one-general-1", worker))

	require.NoError(t, w.lab.Data.ChangeFirewall(w.vm("one-general-1").ID, func(f *datacentre.GuestFirewall) error {
		f.Rules = append(f.Rules, datacentre.Config{"type": "in", "action": "ACCEPT", "enable": "1", "comment": "mine", "source": stranger})

		return nil
	}))
	assert.True(t, proxmoxAdmits("one-general-1", worker))
	assert.False(t, admits(stranger, worker), "Talos' firewall has no such rule")

	booted := w.bootTimes()
	cluster.YAML = "firewall: {admin: [127.0.0.0/16], kubernetesApi: [" + stranger + "/32], proxmox: {}}"

	w.up(s.yaml(t))
	assert.True(t, admits(stranger, api))
	assert.False(t, admits(stranger, controlPlane))
	assert.False(t, proxmoxAdmits("one-cp-1", controlPlane))
	assert.Equal(t, booted, w.bootTimes(), "nothing restarts for rules")

	cluster.YAML = talosOnly

	w.up(s.yaml(t))
	assert.False(t, filtered("one-cp-1") || filtered("one-general-1"))
	assert.Empty(t, comments("one-cp-1"))
	assert.Empty(t, w.lab.Data.Firewall(w.vm("one-cp-1").ID).Options)
	assert.Equal(t, []string{"mine"}, comments("one-general-1"))
	w.up(s.yaml(t), optup.ExpectNoChanges())
}
