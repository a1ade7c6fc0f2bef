package engine_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFirewall: machines admit administrators only. Rules that would lock out this computer are warned of in a preview,
// and reverted by Talos. Without them everything is open again.
func TestFirewall(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := w.stack(1, 1)
	cluster := &s.Clusters[0]
	controlPlane, worker := w.network+".1.10", w.network+".1.20"
	here, stranger := "127.0.0.1", w.network+".9.9"
	admin := "127.0.0.0/16" // smaller networks are mapped to the lab's

	requireOpen := func(toStrangers bool) {
		t.Helper()

		for _, end := range []string{controlPlane + ":50000", controlPlane + ":6443", worker + ":50000"} {
			assert.True(t, admits(here, end), end)
			assert.Equal(t, toStrangers, admits(stranger, end), end)
		}
	}

	cluster.YAML = "firewall: {admin: [" + admin + "]}"

	w.up(s.yaml(t))
	assert.Contains(t, w.output(), "clusters[0].firewall: the ports of your CNI are closed")
	requireOpen(false)
	w.up(s.yaml(t), optup.Refresh(), optup.ExpectNoChanges())

	booted := w.bootTimes()
	cluster.YAML = "firewall: {admin: [" + w.network + ".9.0/24]}"
	assert.Contains(t, w.previewOutput(s.yaml(t)), "clusters[0].firewall.admin: does not contain the address 127.0.0.1 with "+
		"which this computer connects to one-cp-1: the firewall would lock it out")

	cluster.YAML = fmt.Sprintf("patches: [%q]", "apiVersion: v1alpha1\nkind: NetworkDefaultActionConfig\ningress: block\n---\n"+
		"apiVersion: v1alpha1\nkind: NetworkRuleConfig\nname: mine\nportSelector: {ports: [50000, 6443], protocol: tcp}\n"+
		"ingress: [{subnet: "+w.network+".9.0/24}]\n")
	_, err := w.tryUp(t.Context(), s.yaml(t))
	require.Error(t, err)
	assert.Contains(t, w.output(), "keeps its firewall: with the planned one this computer did not get in within 30s")
	requireOpen(false)

	cluster.YAML = "firewall: {admin: [" + admin + ", " + stranger + "/32]}"

	w.up(s.yaml(t))
	requireOpen(true)

	cluster.YAML = ""

	w.up(s.yaml(t))
	assert.True(t, admits(w.network+".8.8", worker+":50000"))
	assert.Equal(t, booted, w.bootTimes(), "nothing restarts")
	w.up(s.yaml(t), optup.ExpectNoChanges())
}

// admits reports whether a machine's firewall admits an address of this computer.
func admits(source, end string) bool {
	dialer := tls.Dialer{
		NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}},
		Config:    &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // nothing is sent
	}

	conn, err := dialer.Dial("tcp", end)
	if err != nil {
		return false
	}

	return conn.Close() == nil
}
