package shell_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/scripts"
	"talos-proxmox/internal/spec"
	"talos-proxmox/lab/datacentre"
)

// rebootScript requests a reboot like the program.
func (h *host) rebootScript(t *testing.T) string {
	t.Helper()

	plan := spec.Host{Name: "pve1", Prep: &spec.Prep{IOMMU: true, Repositories: "keep", Reboot: "whenIdle"}}
	parameters := append(
		scripts.HostParameters(plan, "talos-proxmox/test", true), scripts.Parameter{Name: "clusters", Value: "one"},
	)
	stdout, stderr, status := h.run(t, scripts.HostCommand(scripts.ActionReboot), scripts.Host(parameters))

	return strings.TrimSpace(stdout + strings.Repeat(stderr, min(status, 1)))
}

// TestClusterVotes takes hosts of a cluster of three offline one after the other.
func TestClusterVotes(t *testing.T) {
	t.Parallel()

	h := start(t, hostOptions{speed: 100, cluster: "lab", others: []string{"pve3"}})
	stdout, _, status := h.run(t, "pvecm status", "")
	assert.Zero(t, status)
	assert.Contains(
		t, stdout,
		"Expected votes:   3\nHighest expected: 3\nTotal votes:      3\nQuorum:           2  \nFlags:            Quorate \n",
	)
	assert.Contains(
		t, stdout, "0x00000001          1 pve1 (local)\n0x00000002          1 pve2\n0x00000003          1 pve3\n",
	)

	_, err := h.dc.AddFault(datacentre.Fault{Offline: true, Host: "pve2"})
	require.NoError(t, err)
	assert.Equal(t, "wait without it, the Proxmox cluster has 1 of the 2 votes of a quorum", h.rebootScript(t))
	assert.True(t, h.dc.Quorate())

	_, err = h.dc.AddFault(datacentre.Fault{Offline: true, Host: "pve3"})
	require.NoError(t, err)
	assert.False(t, h.dc.Quorate())

	stdout, _, _ = h.run(t, "pvecm status; ha-manager status", "")
	assert.Contains(t, stdout, "Total votes:      1\nQuorum:           2 Activity blocked\n")
	assert.Contains(t, stdout, "No quorum on node 'pve1'!")
	_, stderr, status := h.run(t, "mkdir -p $HOST_ROOT/etc/pve/priv/lock; mkdir $HOST_ROOT/etc/pve/priv/lock/x", "")
	assert.Equal(t, 1, status)
	assert.Contains(t, stderr, "cannot create directory '/etc/pve/priv/lock/x': Permission denied")

	_, err = h.dc.CreateVM("root@pam", "pve1", 100, datacentre.Config{"name": "x"})
	require.ErrorContains(t, err, "cluster not ready - no quorum?")
}

func TestVotesWithQDevice(t *testing.T) {
	t.Parallel()

	h := start(t, hostOptions{speed: 100, cluster: "lab"})
	stdout, _, _ := h.run(t, "pvecm status", "")
	assert.Contains(t, stdout, "Expected votes:   3\nHighest expected: 3\nTotal votes:      3\nQuorum:           2  \nFlags:            Quorate Qdevice \n")
	assert.Contains(t, stdout, "0x00000001          1   A,V,NMW pve1 (local)\n0x00000002          1   A,V,NMW pve2\n0x00000000          1            Qdevice\n")

	alone := fast(t)
	_, stderr, status := alone.run(t, "pvecm status", "")
	assert.NotZero(t, status)
	assert.Contains(t, stderr, "is this node part of a cluster?")
}

// TestClusterLock: a lock is held once in the cluster, and released on request once it is two minutes old.
func TestClusterLock(t *testing.T) {
	t.Parallel()

	const lock = "$HOST_ROOT/etc/pve/priv/lock/x"

	for name, test := range map[string]struct {
		speed    float64
		released bool
	}{"young": {1, false}, "old": {1e9, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			h := start(t, hostOptions{speed: test.speed, cluster: "lab"})
			_, stderr, status := h.run(t, "mkdir "+lock, "")
			require.Zero(t, status, stderr)
			_, stderr, _ = h.run(t, "mkdir "+lock, "")
			assert.Contains(t, stderr, "File exists")
			_, stderr, status = h.run(t, "touch -d @0 "+lock+"; mkdir "+lock, "")
			assert.Equal(t, test.released, status == 0, stderr)
			_, stderr, status = h.run(t, "rmdir "+lock+"; mkdir "+lock, "")
			assert.Zero(t, status, stderr)
		})
	}
}
