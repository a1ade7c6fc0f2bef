package etcd_test

import (
	"encoding/json"
	"net/netip"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"talos-proxmox/lab/machine/etcd"
	"talos-proxmox/lab/machine/pods"
)

// silent are machines whose kubelets say nothing.
type silent struct {
	sync.Mutex

	posts, believed bool
}

func (s *silent) Posts(*etcd.Cluster, *etcd.Node) bool { return s.posts }
func (s *silent) Believed(*etcd.Node) bool             { return s.believed }
func (s *silent) GPUs(*etcd.Node) pods.GPUs            { return pods.GPUs{} }

// disk is a machine's.
type disk struct {
	c       *etcd.Cluster
	data    *etcd.Data
	removed bool
}

func (d *disk) MemberID() uint64     { return d.data.MemberID }
func (d *disk) Address() netip.Addr  { return d.c.Member(d.data.MemberID).Address }
func (d *disk) Keep(data *etcd.Data) { d.data = data }
func (d *disk) Changed()             {}

func (d *disk) Removed() {
	d.removed = true
	d.c.Stop(d)
}

func address(n byte) netip.Addr { return netip.AddrFrom4([4]byte{127, 20, 1, n}) }

// cluster is one of three members that vote. The test holds the machines' lock.
func cluster(t *testing.T) (*etcd.Cluster, []*disk) {
	t.Helper()

	machines := &silent{}
	machines.Lock()
	t.Cleanup(machines.Unlock)

	c, data := etcd.Bootstrap(machines, "one", address(1))
	disks := []*disk{{c: c, data: data}}
	c.Start(disks[0])
	c.Changed()

	for n, name := range []string{"two", "three"} {
		d := &disk{c: c}
		c.Join(d, name, address(byte(n+2)), func(data *etcd.Data) { d.data = data }) //nolint:gosec // 2 or 3
		c.Promote(d.MemberID())

		disks = append(disks, d)
	}

	return c, disks
}

func TestQuorum(t *testing.T) {
	t.Parallel()

	c, disks := cluster(t)
	require.True(t, c.Quorum())
	assert.Equal(t, disks[0].MemberID(), c.Leader)
	assert.Equal(t, []string{"one", "two", "three"}, c.MemberNames())
	require.ErrorIs(t, c.Remove(1), etcd.ErrMemberNotFound)

	c.Stop(disks[0])
	assert.True(t, c.Quorum())
	assert.Equal(t, disks[1].MemberID(), c.Leader, "another member leads")
	assert.Equal(t, address(3), c.AddressBut(disks[1]))
	assert.Equal(t, disks[2].MemberID(), c.Successor(disks[1].MemberID()).ID)
	assert.Nil(t, c.Successor(disks[2].MemberID()), "it does not lead")
	require.ErrorIs(t, c.Remove(disks[1].MemberID()), etcd.ErrNotEnoughMembers)

	require.NoError(t, c.Remove(disks[0].MemberID()), "it does not run")
	assert.False(t, disks[0].removed)

	c.Stop(disks[1])
	assert.False(t, c.Quorum())
	assert.Zero(t, c.Leader)
	assert.False(t, c.Promote(disks[2].MemberID()))
}

func TestRemovedMembersAreTakenDown(t *testing.T) {
	t.Parallel()

	c, disks := cluster(t)
	require.NoError(t, c.Remove(disks[0].MemberID()))
	assert.True(t, disks[0].removed)
	assert.False(t, c.Runs(disks[0].MemberID()))
	assert.Equal(t, disks[1].MemberID(), c.Leader)
}

func TestCopiesOnDisk(t *testing.T) {
	t.Parallel()

	c, disks := cluster(t)
	c.Store(&etcd.Node{Name: "worker"})
	assert.NotEmpty(t, c.Keep(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "plugin", "namespace": "gpu"},
	}))
	assert.Empty(t, c.Keep(map[string]any{"apiVersion": "v1", "kind": "Secret"}), "the model has no use for it")
	c.Persist()

	text, err := json.Marshal(disks[2].data)
	require.NoError(t, err)

	var data etcd.Data
	require.NoError(t, json.Unmarshal(text, &data))

	again := etcd.New(&silent{}, c.ID, false)
	again.Restore(&data)
	assert.Equal(t, c.Revision, again.Revision)
	assert.Equal(t, c.Members, again.Members)
	assert.NotNil(t, again.Nodes["worker"])
	assert.NotNil(t, again.Object("configmaps", "gpu", "plugin"))

	again.Delete("worker")
	again.Restore(&data)
	assert.Empty(t, again.Nodes, "the copy is older")
}

func TestReadyNodes(t *testing.T) {
	t.Parallel()

	for name, one := range map[string]struct {
		posts, believed, cni bool
		want                 corev1.ConditionStatus
	}{
		"a kubelet that posts":             {posts: true, cni: true, want: corev1.ConditionTrue},
		"without a CNI":                    {posts: true, want: corev1.ConditionFalse},
		"a kubelet that was just heard of": {believed: true, cni: true, want: corev1.ConditionTrue},
		"a silent kubelet":                 {cni: true, want: corev1.ConditionUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			c := etcd.New(&silent{posts: one.posts, believed: one.believed}, 1, false)
			n := &etcd.Node{Name: "worker", CNI: one.cni}
			c.Nodes[n.Name] = n
			status, _, _ := c.Ready(n)
			assert.Equal(t, one.want, status)
			assert.Equal(t, one.want == corev1.ConditionTrue, c.Schedulable())
		})
	}
}

func TestNodesOfARealAPIServer(t *testing.T) {
	t.Parallel()

	saw := func(uid types.UID, version string) *etcd.Node {
		return etcd.Observed(&corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: "worker", UID: uid, ResourceVersion: version,
		}})
	}

	c := etcd.New(&silent{}, 1, true)
	assert.True(t, c.SawNode(saw("a", "5"), 3021, false))
	assert.False(t, c.SawNode(saw("a", "5"), 3021, false), "another control plane has told of it")
	assert.True(t, c.SawNode(saw("a", "6"), 0, false))
	assert.Equal(t, 3021, c.Nodes["worker"].VMID, "of its machine, which is off")
	assert.True(t, c.SawNode(saw("b", "9"), 0, false), "registered again")
	assert.False(t, c.SawNode(saw("a", "8"), 0, true), "the one before was deleted")
	assert.True(t, c.SawNode(saw("b", "9"), 0, true))
	assert.Empty(t, c.Nodes)
}
