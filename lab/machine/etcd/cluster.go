// Package etcd is the lab's view of an etcd cluster: its members, its leader, and the data that the lab needs. For the
// model that is all there is; of a real cluster it mirrors what members and API servers report.
//
// The machines' lock guards everything here: callers hold it, and [Machines] and [Runner] are called with it held.
package etcd

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/pods"
)

// persistDelay batches changes of nodes, so that a starting cluster does not write every disk for each change.
const persistDelay = 200 * time.Millisecond

// Machines are all machines of the lab.
type Machines interface {
	// Locker is the machines' lock.
	sync.Locker
	// IsPosting reports whether the kubelet of a node posts its status to the cluster; InGracePeriod whether one that
	// stopped did so only a moment ago, so that Kubernetes keeps its status.
	IsPosting(c *Cluster, n *Node) bool
	InGracePeriod(n *Node) bool
	// GPUs returns the GPUs of a posting node.
	GPUs(n *Node) pods.GPUs
}

// Runner is a machine that runs a member of the cluster. Runners are comparable.
type Runner interface {
	// MemberID returns the id of its member.
	MemberID() uint64
	// EtcdAddress returns the address of its member; invalid if the machine is going down.
	EtcdAddress() netip.Addr
	// SaveEtcd writes a copy of the cluster's data to the machine's disk.
	SaveEtcd(d *Data)
	// EtcdChanged is called when members, leader or quorum may have changed.
	EtcdChanged()
	// EtcdRemoved stops the member, which was removed from the cluster.
	EtcdRemoved()
}

// Cluster is an etcd cluster. It lives as long as the process; its members' disks hold copies.
type Cluster struct {
	ID       uint64
	Revision uint64
	Members  []controlplane.Member
	Leader   uint64
	// Nodes are keyed by name.
	Nodes map[string]*Node
	// Real marks the view of a real cluster, which keeps its data itself.
	Real bool

	machines Machines
	silent   map[string]metav1.Time                // since when nodes of the model are not heard of, by name
	objects  map[string]*unstructured.Unstructured // by objectKey
	running  []Runner
	flush    *time.Timer
}

// Data is a member's copy on disk.
type Data struct {
	ClusterID uint64                `json:"clusterId"`
	MemberID  uint64                `json:"memberId"`
	Revision  uint64                `json:"revision"`
	Members   []controlplane.Member `json:"members"`
	// Nodes and Objects have new JSON names, since earlier labs stored them in another form: their machines register nodes
	// and create manifests again.
	Nodes   []*Node                      `json:"nodeObjects,omitempty"`
	Objects []*unstructured.Unstructured `json:"keptObjects,omitempty"`
	// Initial lists the members at a real member's first start, New is set if it bootstraps the cluster; both are ignored
	// once it has data.
	Initial string `json:"initial,omitempty"`
	New     bool   `json:"new,omitempty"`
}

// New returns a cluster without members.
func New(machines Machines, id uint64, real bool) *Cluster {
	return &Cluster{
		ID: id, Real: real, machines: machines, Nodes: map[string]*Node{}, objects: map[string]*unstructured.Unstructured{},
	}
}

// Bootstrap returns a new cluster with one member, and that member's data.
func Bootstrap(machines Machines, name string, address netip.Addr) (*Cluster, *Data) {
	c := New(machines, randomID(), false)
	member := controlplane.Member{ID: randomID(), Name: name, Address: address}
	c.Members, c.Revision = []controlplane.Member{member}, 1

	return c, c.DataFor(member.ID)
}

// FormatID formats the id of a cluster or a member like etcd.
func FormatID(id uint64) string { return fmt.Sprintf("%016x", id) }

func randomID() uint64 {
	var b [8]byte

	_, _ = rand.Read(b[:]) // never fails

	return binary.BigEndian.Uint64(b[:])
}

// Member returns the member with an id; nil if there is none.
func (c *Cluster) Member(id uint64) *controlplane.Member {
	for i := range c.Members {
		if c.Members[i].ID == id {
			return &c.Members[i]
		}
	}

	return nil
}

// IsRunning reports whether a member runs.
func (c *Cluster) IsRunning(id uint64) bool { return isRunning(c.running, id) }

func isRunning(running []Runner, id uint64) bool {
	return slices.ContainsFunc(running, func(r Runner) bool { return r.MemberID() == id })
}

// AnyRunning reports whether any member runs.
func (c *Cluster) AnyRunning() bool { return len(c.running) > 0 }

// OtherAddress returns the address of a running member on another machine; invalid if there is none.
func (c *Cluster) OtherAddress(except Runner) netip.Addr {
	for _, r := range c.running {
		if a := r.EtcdAddress(); r != except && a.IsValid() {
			return a
		}
	}

	return netip.Addr{}
}

// HasQuorum reports whether more than half of the voters run.
func (c *Cluster) HasQuorum() bool { return hasQuorum(c.Members, c.running) }

func hasQuorum(members []controlplane.Member, running []Runner) bool {
	voters, alive := 0, 0

	for _, member := range members {
		if member.Learner {
			continue
		}

		voters++

		if isRunning(running, member.ID) {
			alive++
		}
	}

	return alive > voters/2
}

// HasLearner reports whether there is a learner; etcd allows one at a time.
func (c *Cluster) HasLearner() bool {
	return slices.ContainsFunc(c.Members, func(m controlplane.Member) bool { return m.Learner })
}

// commit increments the revision, and lets every running member save: at once, or after a delay that batches changes.
func (c *Cluster) commit(now bool) {
	c.Revision++

	if now {
		c.Persist()

		return
	}

	if c.flush == nil {
		c.flush = time.AfterFunc(persistDelay, func() {
			c.machines.Lock()
			defer c.machines.Unlock()

			c.flush = nil
			c.Persist()
		})
	}
}

// Persist lets every running member save its copy.
func (c *Cluster) Persist() {
	if c.Real {
		return
	}

	for _, r := range c.running {
		r.SaveEtcd(c.DataFor(r.MemberID()))
	}
}

// DataFor returns the copy of a member.
func (c *Cluster) DataFor(member uint64) *Data {
	data := &Data{
		ClusterID: c.ID, MemberID: member, Revision: c.Revision, Members: slices.Clone(c.Members), Nodes: c.SortedNodes(),
	}
	for _, key := range slices.Sorted(maps.Keys(c.objects)) {
		data.Objects = append(data.Objects, c.objects[key])
	}

	return data
}

// Restore adopts a member's copy if it is newer.
func (c *Cluster) Restore(data *Data) {
	if data.Revision <= c.Revision {
		return
	}

	c.Revision, c.Members = data.Revision, slices.Clone(data.Members)
	c.Nodes, c.objects = map[string]*Node{}, map[string]*unstructured.Unstructured{}

	for _, n := range data.Nodes {
		c.Nodes[n.Name] = n
	}

	for _, o := range data.Objects {
		c.objects[keyFor(o)] = o
	}
}

// elect keeps the leader while it runs, and otherwise elects another voter.
func (c *Cluster) elect() {
	if !c.HasQuorum() {
		c.Leader = 0

		return
	}

	voters := []uint64{}

	for _, r := range c.running {
		if member := c.Member(r.MemberID()); member != nil && !member.Learner {
			voters = append(voters, member.ID)
		}
	}

	if !slices.Contains(voters, c.Leader) {
		c.Leader = cmp.Or(voters...)
	}
}
